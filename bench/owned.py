"""A cache that evicts in line by an order renewed at each cycle: the ceiling of scores at that cadence.

At each boundary the files on disk are ordered by the best of chance over expected time (`best_rate`), equal
ones by recency. When room is needed, the least of those go that were not read since; if all were, the one
read longest ago. With a cycle of at least a day, hardly anything is left of the order at its end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from plan_gap import Region  # noqa: E402

from features.arrays import BoolArray, IntArray  # noqa: E402
from features.jit import kernel  # noqa: E402
from prefetch.plan import Scores  # noqa: E402
from prefetch.plan.value import best_rate  # noqa: E402
from replay.bounds import byte_bound  # noqa: E402
from replay.policies import run_policy  # noqa: E402
from replay.trace import ItemArray  # noqa: E402


class Owned(NamedTuple):
    """Missed bytes of the counted days at one capacity."""

    lru: int
    owned: int
    bound: int

    @property
    def gap_closed(self) -> float:
        """0 for LRU, 1 for the bound."""
        return (self.lru - self.owned) / (self.lru - self.bound)


def owned(
    region: Region, at: Callable[[int], Scores], cycle_s: int, fractions: tuple[float, ...]
) -> list[Owned]:
    """The owned order with the scores of `at`, LRU and the bound, at each fraction of the footprint."""
    trace = region.trace
    capacities = [int(share * trace.footprint_bytes) for share in fractions]
    missed = _replayed(region, at, cycle_s, capacities)
    rows = []
    for capacity, own in zip(capacities, missed, strict=True):
        lru = run_policy("lru", trace, capacity, count_from_s=region.count_from_s)
        bound = byte_bound(trace, capacity, count_from_s=region.count_from_s)
        rows.append(Owned(lru.wan_bytes, own, bound.wan_bytes))
    return rows


def _replayed(region: Region, at: Callable[[int], Scores], cycle_s: int, capacities: list[int]) -> list[int]:
    """Missed bytes per capacity; all caches are asked at the same moments."""
    trace = region.trace
    n, count = trace.n_items, trace.first_at(region.count_from_s)
    on_disk = np.zeros((len(capacities), n), np.bool_)
    used, missed = np.zeros(len(capacities), np.int64), np.zeros(len(capacities), np.int64)
    last_read = np.full(n, -1)
    region.rewind()
    begin = int(trace.time_s[0]) // cycle_s * cycle_s
    for time_s in range(begin, int(trace.time_s[-1]) + 1, cycle_s):
        low, high = trace.first_at(time_s), trace.first_at(time_s + cycle_s)
        if low == high:
            continue
        scores = at(time_s)
        value = np.zeros(n)
        value[scores.item] = best_rate(scores.probability, scores.horizons_s)
        before = last_read.copy()
        for place, capacity in enumerate(capacities):
            held = np.flatnonzero(on_disk[place])
            order = held[np.lexsort((region.last_s[held], value[held]))]
            last_read = before.copy()
            disk = _Disk(on_disk[place], last_read, order, used[place : place + 1])
            missed[place] += _span(_Span(trace.item, trace.size_bytes, low, high, count), disk, capacity)
    return [int(one) for one in missed]


class _Span(NamedTuple):
    """The accesses from `low` to before `high`; those from `count` on are counted."""

    item: ItemArray
    size: IntArray
    low: int
    high: int
    count: int


class _Disk(NamedTuple):
    """`order`: what was on disk at the boundary, least valuable first; `used`: int64[1], bytes."""

    on_disk: BoolArray
    last_read: IntArray
    order: IntArray
    used: IntArray


@kernel
def _span(span: _Span, disk: _Disk, capacity: int) -> int:
    """Missed bytes of the counted accesses of a span."""
    place, missed = 0, 0
    on_disk, last_read, order = disk.on_disk, disk.last_read, disk.order
    for i in range(span.low, span.high):
        file = span.item[i]
        size = span.size[file]
        last_read[file] = i
        if on_disk[file]:
            continue
        if i >= span.count:
            missed += size
        if size > capacity:
            continue
        while disk.used[0] + size > capacity:
            victim = -1
            while victim < 0 and place < order.size:
                if on_disk[order[place]] and last_read[order[place]] < span.low:
                    victim = order[place]
                place += 1
            if victim < 0:
                for other in range(on_disk.size):
                    if on_disk[other] and (victim < 0 or last_read[other] < last_read[victim]):
                        victim = other
            on_disk[victim] = False
            disk.used[0] -= span.size[victim]
        on_disk[file] = True
        disk.used[0] += size
    return missed
