"""Bounds that no cache of a given size can beat: `byte_bound` on WAN bytes, `object_bound` on hits."""

import math
import time
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.jit import bare
from replay.kernels.accesses import AHEAD, fetch, tally_of
from replay.policies.clairvoyant import Positions, add, discard, expect, farthest, no_positions
from replay.result import Result, tallied
from replay.trace import IndexArray, ItemArray, Trace, window

_STEPS = 64
"""Buckets of costs in each power of two."""
_BUCKETS = 160 * _STEPS
_ROUNDING = 1e-9
"""Room is enlarged by this: sums of up to 2^31 floats have a smaller relative error, so a bound stays one."""


class Spans(NamedTuple):
    """The spans from each access i to `following[i]`; those that end before `first` are not counted."""

    item: ItemArray
    size: IntArray
    following: IndexArray
    capacity: int
    first: int


def byte_bound(trace: Trace, capacity_bytes: int, *, count_from_s: int | None = None) -> Result:
    """The fewest WAN bytes over the counted window, for caches that never hold more than `capacity_bytes`.

    Any part of a file may be cached or bypassed, and the file with the farthest next access is trimmed first
    (BeladySplit); this solves the linear program of offline caching for bytes. At `count_from_s` any bytes of
    files read before may be cached for free. So the bound holds for every policy, and for every plan whose
    prefetches are charged, if `capacity_bytes` is the peak usage observed in the window. Raises InputError.
    """
    counted = window(trace, count_from_s)
    started = time.perf_counter()
    n_counted = trace.n_accesses - counted.first
    held, hit_bytes = np.zeros(trace.n_items, np.int64), np.zeros(n_counted, np.int64)
    spans = Spans(trace.item, trace.size_bytes, trace.following, capacity_bytes, counted.first)
    peak = _split(spans, no_positions(trace.n_accesses), held, hit_bytes)
    seconds = time.perf_counter() - started
    return tallied(
        "bound",
        tally_of(trace, hit_bytes),
        capacity_bytes=capacity_bytes,
        count_from_s=counted.count_from_s,
        peak_usage_bytes=int(peak),
        seconds=seconds,
    )


@bare
def _split(spans: Spans, positions: Positions, held: IntArray, hit_bytes: IntArray) -> int:
    """Serve all accesses by BeladySplit; the peak of the bytes held.

    `held`: bytes per file; `hit_bytes`: those held at each access of the window.
    """
    item, size, following, capacity, first = spans
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


def object_bound(trace: Trace, capacity_bytes: int, *, count_from_s: int | None = None) -> Result:
    """The most hits over the counted window, for caches that never hold more than `capacity_bytes`.

    PFOO-L (Berger, Beckmann and Harchol-Balter, 2018). To keep a file until its next access gives one hit,
    and costs size · accesses in between. The total cost is limited to capacity · all accesses, and the
    cheapest hits are taken. At `count_from_s` files read before may be cached for free. The bound holds
    without prefetch. `hit_bytes` are those of the hits taken, no bound on bytes. Raises InputError.
    """
    counted = window(trace, count_from_s)
    started = time.perf_counter()
    spans = Spans(trace.item, trace.size_bytes, trace.following, capacity_bytes, counted.first)
    room = float(capacity_bytes) * (trace.n_accesses - counted.first) * (1 + _ROUNDING)
    hit = np.zeros(trace.n_accesses - counted.first, np.bool_)
    limit, n_at_limit = _cheapest(spans, room)
    _take(spans, limit, n_at_limit, hit)
    seconds = time.perf_counter() - started
    return tallied(
        "object-bound",
        tally_of(trace, hit),
        capacity_bytes=capacity_bytes,
        count_from_s=counted.count_from_s,
        peak_usage_bytes=capacity_bytes,
        seconds=seconds,
    )


def _cheapest(spans: Spans, room: float) -> tuple[float, int]:
    """The cost below which all hits fit in `room`, and how many hits of exactly that cost fit as well."""
    number = np.zeros(_BUCKETS, np.int64)
    total = np.zeros(_BUCKETS)
    _count(spans, number, total)
    bucket = int(np.searchsorted(np.cumsum(total), room, side="right"))
    if bucket == _BUCKETS:
        return math.inf, 0
    # Only the costs in the limit's bucket are sorted, so that no array has the length of the trace.
    costs = np.empty(number[bucket])
    _collect(spans, bucket, costs)
    costs.sort()
    fits = int(np.searchsorted(np.cumsum(costs), room - total[:bucket].sum(), side="right"))
    limit = costs[min(fits, costs.size - 1)]
    return float(limit), fits - int(np.searchsorted(costs, limit))


@bare
def _cost(spans: Spans, i: int) -> float:
    """The cost, from `first` on, of keeping access i's file until its next access; -1 if it gives no hit."""
    after = spans.following[i]
    size = spans.size[spans.item[i]]
    if after < spans.first or after == spans.item.size or size > spans.capacity:
        return -1.0
    cost: float = size * float(after - max(i, spans.first - 1))
    return cost


@bare
def _bucket(cost: float) -> int:
    """The bucket of a cost; buckets grow by 1 to 2 %."""
    mantissa, exponent = math.frexp(cost)
    if cost < 1:
        return 0
    return int(exponent * _STEPS + int((2 * mantissa - 1) * _STEPS))


@bare
def _count(spans: Spans, number: IntArray, total: FloatArray) -> None:
    """Add to each bucket its number of hits, and the sum of their costs."""
    for i in range(spans.item.size):
        cost = _cost(spans, i)
        if cost >= 0:
            bucket = _bucket(cost)
            number[bucket] += 1
            total[bucket] += cost


@bare
def _collect(spans: Spans, bucket: int, costs: FloatArray) -> None:
    """Write the costs in one bucket to `costs`."""
    n = 0
    for i in range(spans.item.size):
        cost = _cost(spans, i)
        if cost >= 0 and _bucket(cost) == bucket:
            costs[n] = cost
            n += 1


@bare
def _take(spans: Spans, limit: float, n_at_limit: int, hit: BoolArray) -> None:
    """Mark the hits that cost less than `limit`, and the first `n_at_limit` of exactly that cost."""
    for i in range(spans.item.size):
        cost = _cost(spans, i)
        if cost < 0 or cost > limit:
            continue
        if cost == limit:
            if n_at_limit == 0:
                continue
            n_at_limit -= 1
        hit[spans.following[i] - spans.first] = True
