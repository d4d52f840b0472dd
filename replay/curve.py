"""The hit ratios of LRU at every capacity, from one pass over the trace.

An access is a hit in every cache that can hold its file and all files read since the file's last access.
Their bytes are the byte-weighted stack distance (Mattson et al., 1970), here computed with a tree of sums
over the order of last accesses. Sixteen entries of a node lie side by side: fewer waits for memory.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from features.common.arrays import IntArray, short_repr
from features.common.jit import bare
from features.common.units import as_bytes
from replay.kernels.accesses import AHEAD, fetch
from replay.trace import ItemArray, Trace, window

FAN, FAN_BITS = 16, 4
"""Entries that one entry of the level above sums up."""


class Sums(NamedTuple):
    """Sums of amounts by slot. `level`: int64[l], where each level begins in `sums`: first the slots."""

    sums: IntArray
    level: IntArray


def no_sums(slots: int) -> Sums:
    """Sums of so many slots, all 0."""
    sizes = [-(-max(1, slots) // FAN) * FAN]
    while sizes[-1] > FAN:
        sizes.append(-(-sizes[-1] // FAN**2) * FAN)
    return Sums(np.zeros(sum(sizes), np.int64), np.cumsum([0, *sizes[:-1]]))


@bare
def move(of: Sums, source: int, target: int, amount: int) -> None:
    """Take `amount` from slot `source`, -1: from none, and add it at `target`."""
    for level in of.level:
        if source >= 0:
            of.sums[level + source] -= amount
        of.sums[level + target] += amount
        source, target = source >> FAN_BITS, target >> FAN_BITS


@bare
def sum_behind(of: Sums, slot: int) -> int:
    """The sum of the slots behind one."""
    total = 0
    for level in of.level:
        place = slot & (FAN - 1)
        group = of.sums[level + slot - place : level + slot - place + FAN]
        for k in range(FAN):
            total += group[k] if k > place else 0
        slot >>= FAN_BITS
    return total


class Gain(NamedTuple):
    """How much both ratios grow in a larger cache."""

    hit_ratio: float
    byte_hit_ratio: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Curve:
    """The hits of LRU at every capacity.

    `capacity_bytes`: int64[k], ascending, the capacities at which anything changes; `hits` and `hit_bytes`:
    int64[k], for caches from that capacity up to the next one. From `exact_from_bytes` on, the size of the
    largest file read, the curve equals a replay. Below it, a replay bypasses files that do not fit, which
    the curve does not model.
    """

    capacity_bytes: IntArray
    hits: IntArray
    hit_bytes: IntArray
    requests: int
    bytes_requested: int
    exact_from_bytes: int

    def __repr__(self) -> str:
        return short_repr(self, "requests", "bytes_requested", "exact_from_bytes")

    def hit_ratio_at(self, capacity_bytes: int | str) -> float:
        """Share of the requests that are hits, for example at `"5TB"`."""
        return _at(self.capacity_bytes, self.hits, capacity_bytes) / self.requests

    def byte_hit_ratio_at(self, capacity_bytes: int | str) -> float:
        """Share of the bytes requested that are hits; 0 if none were requested."""
        hit_bytes = _at(self.capacity_bytes, self.hit_bytes, capacity_bytes)
        return hit_bytes / self.bytes_requested if self.bytes_requested else 0.0

    def doubling_adds(self, capacity_bytes: int | str) -> Gain:
        """How much both ratios grow at twice `capacity_bytes`."""
        twice = 2 * as_bytes(capacity_bytes)
        return Gain(
            self.hit_ratio_at(twice) - self.hit_ratio_at(capacity_bytes),
            self.byte_hit_ratio_at(twice) - self.byte_hit_ratio_at(capacity_bytes),
        )

    def capacity_for(
        self, *, hit_ratio: float | None = None, byte_hit_ratio: float | None = None
    ) -> int | None:
        """The smallest capacity with the given ratios, at least `exact_from_bytes`; None if there is none."""
        goals = (
            (hit_ratio, self.hits, self.requests),
            (byte_hit_ratio, self.hit_bytes, self.bytes_requested),
        )
        least = [_first(cumulative, ratio, of) for ratio, cumulative, of in goals if ratio is not None]
        index = max(least, default=-1)
        if index < 0:
            return 0
        if index == self.capacity_bytes.size:
            return None
        return max(int(self.capacity_bytes[index]), self.exact_from_bytes)


def lru_curve(trace: Trace, *, count_from_s: int | None = None) -> Curve:
    """The curve of `trace`, counting accesses from `count_from_s` on (None: all). Raises InputError.

    Time O(n log m); memory about 32 bytes per access that is not a file's first.
    """
    first = window(trace, count_from_s).first
    bytes_requested = int(trace.size_bytes[trace.item[first:]].sum())
    read = np.zeros(trace.n_items, np.bool_)
    read[trace.item] = True
    n_read = int(read.sum())
    distance = np.empty(trace.n_accesses - min(n_read, first), np.int64)
    amount = np.empty(distance.size, np.int64)
    slots = min(2 * n_read, trace.n_accesses)
    stack = _Stack(np.full(trace.n_items, -1, np.int32), np.full(slots, -1, np.int32), no_sums(slots))
    n = int(_distances(_Accesses(trace.item, trace.size_bytes, first), stack, distance, amount))
    distance, amount = distance[:n], amount[:n]
    # Sorting twice is faster than reordering by index: numpy sorts with vector instructions.
    order = np.argsort(distance)
    distance.sort()
    hits = np.empty(n, np.int64)
    k = int(_accumulate(distance, amount, order, hits))
    return Curve(
        capacity_bytes=distance[:k],
        hits=hits[:k],
        hit_bytes=order[:k],
        requests=trace.n_accesses - first,
        bytes_requested=bytes_requested,
        exact_from_bytes=int(trace.size_bytes[read].max()),
    )


def _at(capacity_bytes: IntArray, cumulative: IntArray, at_bytes: int | str) -> int:
    index = int(np.searchsorted(capacity_bytes, as_bytes(at_bytes), side="right"))
    return int(cumulative[index - 1]) if index else 0


def _first(cumulative: IntArray, ratio: float, of: int) -> int:
    """Index of the first capacity with the ratio; -1 if no capacity is needed."""
    if ratio <= 0:
        return -1
    needed = math.ceil(ratio * of)
    # The product may be rounded to just above the number that suffices.
    needed -= of > 0 and (needed - 1) / of >= ratio
    return int(np.searchsorted(cumulative, needed))


class _Accesses(NamedTuple):
    item: ItemArray
    size: IntArray
    first: int


class _Stack(NamedTuple):
    """Files in the order of their last access.

    `slot_of`: slot per file, or -1; `held`: file per slot, or -1; `sizes`: by slot.
    """

    slot_of: ItemArray
    held: ItemArray
    sizes: Sums


@bare
def _distances(accesses: _Accesses, stack: _Stack, distance: IntArray, amount: IntArray) -> int:
    """Fill in distance and size of each access from `first` on whose file was read before; their number."""
    item, size, first = accesses
    slot_of, held, sizes = stack
    free = n = 0
    for i in range(item.size):
        file = item[i]
        if i + 2 * AHEAD < item.size:
            fetch(size, item[i + 2 * AHEAD])
            fetch(slot_of, item[i + 2 * AHEAD])
            coming = slot_of[item[i + AHEAD]]
            fetch(held, coming)
            fetch(sizes.sums, coming)
            fetch(sizes.sums, coming ^ FAN // 2)
        if free == held.size:
            free = _renumber(stack, size)
        slot = slot_of[file]
        if slot >= 0:
            if i >= first:
                distance[n] = size[file] + sum_behind(sizes, slot)
                amount[n] = size[file]
                n += 1
            held[slot] = -1
        move(sizes, slot, free, size[file])
        slot_of[file], held[free] = free, file
        free += 1
    return n


@bare
def _renumber(stack: _Stack, size: IntArray) -> int:
    """Move the files to the first slots, in order, and return the first free one."""
    slot_of, held, sizes = stack
    free = 0
    sizes.sums[:] = 0
    for slot in range(held.size):
        file = held[slot]
        held[slot] = -1
        if file >= 0:
            held[free], slot_of[file] = file, free
            move(sizes, -1, free, size[file])
            free += 1
    return free


@bare
def _accumulate(distance: IntArray, amount: IntArray, order: IntArray, hits: IntArray) -> int:
    """Compact `distance` to distinct values; cumulative hits go to `hits`, bytes to `order`. Their number."""
    k = 0
    total = 0
    for i in range(distance.size):
        total += amount[order[i]]
        # Writing to entry k is safe: k <= i, and entries up to i have been read.
        if i + 1 < distance.size and distance[i + 1] == distance[i]:
            continue
        distance[k] = distance[i]
        hits[k] = i + 1
        order[k] = total
        k += 1
    return k
