"""A 4-ary heap of files by (key, tie), smallest on top, each file in it at most once.

A file's key and tie may only grow while it is in the heap. So growth needs no work here: the caller keeps
the true values and corrects the top with `replace` where it is outdated. Many hits then cost one correction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from replay.kernels.jit import bare
from replay.trace import IndexArray

FloatArray = npt.NDArray[np.float64]


class Entry(NamedTuple):
    """One file and what it is ordered by."""

    key: float
    tie: int
    file: int


class Heap(NamedTuple):
    """The first entries are the heap, the caller counts them; below p are 4p + 1 … 4p + 4."""

    key: FloatArray
    tie: IndexArray
    file: IndexArray


def no_entries(m: int) -> Heap:
    """Room for `m` files."""
    return Heap(np.empty(m, np.float64), np.empty(m, np.int32), np.empty(m, np.int32))


@bare
def push(heap: Heap, count: int, entry: Entry) -> None:
    """Add `entry` to a heap of `count`."""
    at = count
    while at > 0:
        parent = (at - 1) >> 2
        if not _less(entry.key, entry.tie, heap.key[parent], heap.tie[parent]):
            break
        _move(heap, parent, at)
        at = parent
    _put(heap, at, entry)


@bare
def replace(heap: Heap, count: int, entry: Entry) -> None:
    """Put `entry` in place of the top of a heap of `count`."""
    _sink(heap, count, 0, entry)


@bare
def fill(heap: Heap, count: int) -> None:
    """Close the gap that a removed top left, with the last entry: `count` entries stay."""
    if count > 0:
        _sink(heap, count, 0, _entry(heap, count))


@bare
def arrange(heap: Heap, count: int) -> None:
    """Make a heap of the first `count` entries, whatever their order."""
    for at in range((count - 2) >> 2, -1, -1):
        _sink(heap, count, at, _entry(heap, at))


@bare
def _sink(heap: Heap, count: int, hole: int, entry: Entry) -> None:
    at = hole
    while True:
        least = 4 * at + 1
        if least >= count:
            break
        for other in range(least + 1, min(least + 4, count)):
            if _less(heap.key[other], heap.tie[other], heap.key[least], heap.tie[least]):
                least = other
        if not _less(heap.key[least], heap.tie[least], entry.key, entry.tie):
            break
        _move(heap, least, at)
        at = least
    _put(heap, at, entry)


@bare
def _less(key: float, tie: int, other_key: float, other_tie: int) -> bool:
    return key < other_key or (key == other_key and tie < other_tie)


@bare
def _entry(heap: Heap, at: int) -> Entry:
    return Entry(heap.key[at], int(heap.tie[at]), int(heap.file[at]))


@bare
def _move(heap: Heap, source: int, target: int) -> None:
    heap.key[target] = heap.key[source]
    heap.tie[target] = heap.tie[source]
    heap.file[target] = heap.file[source]


@bare
def _put(heap: Heap, at: int, entry: Entry) -> None:
    heap.key[at], heap.tie[at], heap.file[at] = entry
