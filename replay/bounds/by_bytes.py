"""BeladySplit: the fewest WAN bytes."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.jit import bare
from replay.kernels.ahead import AHEAD, fetch
from replay.kernels.farthest import Positions, add, discard, expect, farthest, no_positions
from replay.result import Result, summarise
from replay.trace import Requests, Trace
from replay.window import window


class Kept(NamedTuple):
    """`held`: bytes per file. Per access of the window, `hit`: the whole file was held; `hit_bytes`."""

    held: IntArray
    hit: BoolArray
    hit_bytes: IntArray


def byte_bound(trace: Trace, capacity_bytes: int, *, count_from_s: int | None = None) -> Result:
    """The fewest WAN bytes over the counted window, for caches that never hold more than `capacity_bytes`.

    Any part of a file may be cached or bypassed, and the file with the farthest next access is trimmed first
    (BeladySplit); this solves the linear program of offline caching for bytes. At `count_from_s` any bytes of
    files read before may be cached for free. So the bound holds for every policy, and for every plan whose
    prefetches are charged, if `capacity_bytes` is the peak usage observed in the window. Raises InputError.
    """
    counted = window(trace, count_from_s)
    started = time.perf_counter()
    n = trace.n_accesses
    n_counted = n - counted.first
    kept = Kept(
        np.zeros(trace.n_items, np.int64), np.zeros(n_counted, np.bool_), np.zeros(n_counted, np.int64)
    )
    requests = Requests(trace.item, trace.size_bytes, trace.following)
    peak = _split(requests, capacity_bytes, counted.first, no_positions(n), kept)
    seconds = time.perf_counter() - started
    return summarise(
        "bound",
        trace,
        capacity_bytes=capacity_bytes,
        count_from_s=counted.count_from_s,
        hit=kept.hit,
        hit_bytes=kept.hit_bytes,
        peak_usage_bytes=int(peak),
        seconds=seconds,
    )


@bare
def _split(requests: Requests, capacity: int, first: int, positions: Positions, kept: Kept) -> int:
    held, hit, hit_bytes = kept
    item, size, following = requests
    n = item.size
    used = 0
    peak = 0
    for i in range(n):
        if i + AHEAD < n:
            fetch(held, item[i + AHEAD])
            fetch(size, item[i + AHEAD])
            expect(positions, int(following[i + AHEAD]))
        file = item[i]
        if i >= first:
            hit[i - first] = held[file] == size[file]
            hit_bytes[i - first] = held[file]
            used -= held[file]
            held[file] = 0
        # Before the window only a file's last access counts: the file may be cached when the window begins.
        if first <= following[i] < n:
            held[file] = size[file]
            used += size[file]
            add(positions, int(following[i]))
        while used > capacity:
            last = farthest(positions)
            victim = item[last]
            cut = min(used - capacity, held[victim])
            held[victim] -= cut
            used -= cut
            if held[victim] == 0:
                discard(positions, last)
        peak = max(peak, used)
    return peak
