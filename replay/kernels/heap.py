"""A heap, and on it an agenda: what is due when; of equal times, what was entered first comes first."""

from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray, IntArray
from features.common.jit import bare, inner
from replay.trace import IndexArray

NEVER_S = 2**62
# Entries of Agenda.sums.
PENDING, ENTERED = range(2)


class Entry(NamedTuple):
    """A number, and what it is ordered by."""

    key: float
    tie: int
    what: int


class Heap(NamedTuple):
    """The first entries of the arrays are the heap, the least of all first; the caller keeps their number."""

    key: FloatArray | IntArray
    tie: IndexArray | IntArray
    what: IndexArray | IntArray


@bare
def push(heap: Heap, count: int, entry: Entry) -> None:
    """Add `entry` to a heap of `count`."""
    at = count
    while at > 0:
        parent = (at - 1) >> 2  # a shift, not a division: the root's parent must be below 0
        if not _less(entry.key, entry.tie, heap.key[parent], heap.tie[parent]):
            break
        _move(heap, parent, at)
        at = parent
    _put(heap, at, entry)


@bare
def fill(heap: Heap, count: int) -> None:
    """Fill the place of a removed top with the last entry; `count` entries remain."""
    if count > 0:
        replace(heap, count, Entry(heap.key[count], int(heap.tie[count]), int(heap.what[count])))


@bare
def replace(heap: Heap, count: int, entry: Entry) -> None:
    """Put `entry` in place of the top of a heap of `count`; smaller ones below it move up."""
    at = 0
    while True:
        least = 4 * at + 1  # the first of up to four entries below `at`, which stand side by side
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


@inner
def _less(key: float, tie: int, other_key: float, other_tie: int) -> bool:
    return key < other_key or (key == other_key and tie < other_tie)


@inner
def _move(heap: Heap, source: int, target: int) -> None:
    heap.key[target] = heap.key[source]
    heap.tie[target] = heap.tie[source]
    heap.what[target] = heap.what[source]


@inner
def _put(heap: Heap, at: int, entry: Entry) -> None:
    heap.key[at], heap.tie[at], heap.what[at] = entry


class Agenda(NamedTuple):
    """What is due, by its time and the number of its entry; `sums`: see above."""

    heap: Heap
    sums: IntArray


def new_agenda(room: int) -> Agenda:
    """Nothing is due; `room` things can be."""
    return Agenda(Heap(*(np.zeros(room, np.int64) for _ in Heap._fields)), np.zeros(2, np.int64))


@bare
def next_s(agenda: Agenda) -> int:
    """When the next thing is due, s since 1970."""
    return int(agenda.heap.key[0]) if agenda.sums[PENDING] else NEVER_S


@bare
def enter(agenda: Agenda, due_s: int, what: int) -> None:
    """Enter what is due at a time."""
    heap, sums = agenda
    push(heap, sums[PENDING], Entry(due_s, sums[ENTERED], what))
    sums[PENDING] += 1
    sums[ENTERED] += 1


@bare
def strike(agenda: Agenda) -> None:
    """Take the next thing off."""
    heap, sums = agenda
    sums[PENDING] -= 1
    fill(heap, sums[PENDING])
