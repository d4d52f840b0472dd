"""Lower bounds: WAN bytes that no cache of a given size can go below."""

from __future__ import annotations

import time

import numpy as np

from replay.kernels.farthest import Positions, add, discard, farthest, no_positions
from replay.kernels.jit import kernel
from replay.planner import IntArray
from replay.result import Result, summarise
from replay.trace import Requests, Trace, following
from replay.window import window


def byte_bound(trace: Trace, capacity_bytes: int, *, count_from_s: int | None = None) -> Result:
    """The fewest WAN bytes over the counted window, for caches that never hold more than `capacity_bytes`.

    BeladySplit: files are cached by the byte with bypass, and the farthest next access is trimmed; it
    solves the linear program of offline caching for bytes (BeladySplit). At `count_from_s` any bytes of
    files read before may be there for free. So it holds for any policy and any plan whose prefetches
    are charged, with `capacity_bytes` set to the peak usage observed in the window. Raises InputError.
    """
    counted = window(trace, count_from_s)
    started = time.perf_counter()
    warm = np.unique(trace.item[: counted.first])
    item = np.concatenate([warm, trace.item[counted.first :]])
    held = np.empty(item.size, np.int64)
    requests = Requests(item, trace.size_bytes, following(item, trace.n_items))
    peak = _split(requests, capacity_bytes, no_positions(item.size), held)
    seconds = time.perf_counter() - started
    hit_bytes = held[warm.size :]
    return summarise(
        "bound",
        trace,
        capacity_bytes=capacity_bytes,
        count_from_s=counted.count_from_s,
        hit=hit_bytes == trace.size_bytes[trace.item[counted.first :]],
        hit_bytes=hit_bytes,
        peak_usage_bytes=int(peak),
        seconds=seconds,
    )


@kernel
def _split(requests: Requests, capacity: int, positions: Positions, hit_bytes: IntArray) -> int:
    item, size, after = requests
    n = item.size
    held = np.zeros(size.size, np.int64)
    used = 0
    peak = 0
    for i in range(n):
        file = item[i]
        hit_bytes[i] = held[file]
        used -= int(held[file])
        held[file] = 0
        discard(positions, i)
        if after[i] < n:
            held[file] = size[file]
            used += int(size[file])
            add(positions, int(after[i]))
        while used > capacity:
            last = farthest(positions)
            victim = item[last]
            cut = min(used - capacity, int(held[victim]))
            held[victim] -= cut
            used -= cut
            if held[victim] == 0:
                discard(positions, last)
        peak = max(peak, used)
    return peak
