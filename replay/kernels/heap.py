"""A 4-ary heap of files by (key, tie), smallest on top, each file in it at most once.

A file's key and tie may only grow while it is in the heap. The caller keeps the true values, and corrects an
outdated top with `replace`. So growth costs nothing, and many hits cost one correction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray
from features.common.jit import bare
from replay.trace import IndexArray


class Entry(NamedTuple):
    """A file and what it is ordered by."""

    key: float
    tie: int
    file: int


class Heap(NamedTuple):
    """The first entries of the arrays are the heap; the caller keeps their number."""

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
        parent = _parent(at)
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
    """Fill the place of a removed top with the last entry; `count` entries remain."""
    if count > 0:
        _sink(heap, count, 0, _entry(heap, count))


@bare
def arrange(heap: Heap, count: int) -> None:
    """Make a heap of the first `count` entries, whatever their order."""
    for at in range(_parent(count - 1), -1, -1):
        _sink(heap, count, at, _entry(heap, at))


@bare
def _parent(at: int) -> int:
    # A shift, not a division: the root's parent must be below 0.
    return (at - 1) >> 2


@bare
def _first_child(at: int) -> int:
    """The first of up to four entries below `at`, which stand side by side."""
    return 4 * at + 1


@bare
def _sink(heap: Heap, count: int, hole: int, entry: Entry) -> None:
    """Put `entry` in at `hole`, or below it in place of smaller ones, which move up."""
    at = hole
    while True:
        least = _first_child(at)
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
