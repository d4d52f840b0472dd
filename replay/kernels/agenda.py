"""What is due when, in the order of its time; of equal times, what was entered first comes first."""

from typing import NamedTuple

import numpy as np

from features.common.arrays import IntArray
from features.common.jit import bare, inner, wide

# Columns of Agenda.rows.
DUE_S, NUMBER, WHAT = range(3)
# Entries of Agenda.sums.
PENDING, ENTERED = range(2)
NEVER_S = 2**62


class Agenda(NamedTuple):
    """`rows`: int64[k, 3], a heap of times, numbers of entry and what is due; `sums`: see above."""

    rows: IntArray
    sums: IntArray


def new_agenda(room: int) -> Agenda:
    """Nothing is due; `room` things can be."""
    return Agenda(np.zeros((room, 3), np.int64), np.zeros(2, np.int64))


@bare
def next_s(agenda: Agenda) -> int:
    """When the next thing is due, s since 1970."""
    return int(agenda.rows[0, DUE_S]) if agenda.sums[PENDING] else NEVER_S


@bare
def enter(agenda: Agenda, due_s: int, what: int) -> None:
    """Enter what is due at a time."""
    rows, sums = agenda
    place = sums[PENDING]
    while place > 0 and rows[(place - 1) // 2, DUE_S] > due_s:
        _copy(rows, (place - 1) // 2, place)
        place = (place - 1) // 2
    rows[place, DUE_S], rows[place, NUMBER], rows[place, WHAT] = due_s, sums[ENTERED], what
    sums[PENDING] += 1
    sums[ENTERED] += 1


@bare
def strike(agenda: Agenda) -> None:
    """Take the next thing off."""
    rows, sums = agenda
    sums[PENDING] -= 1
    last, place, child = sums[PENDING], wide(0), wide(1)
    while child < last:
        if child + 1 < last and _is_before(rows, child + 1, child):
            child += 1
        if not _is_before(rows, child, last):
            break
        _copy(rows, child, place)
        place, child = child, 2 * child + 1
    _copy(rows, last, place)


@inner
def _is_before(rows: IntArray, place: int, other: int) -> bool:
    if rows[place, DUE_S] != rows[other, DUE_S]:
        return bool(rows[place, DUE_S] < rows[other, DUE_S])
    return bool(rows[place, NUMBER] < rows[other, NUMBER])


@inner
def _copy(rows: IntArray, source: int, target: int) -> None:
    for column in range(rows.shape[1]):
        rows[target, column] = rows[source, column]
