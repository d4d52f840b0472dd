"""A set of positions 0 … n - 1 whose largest member is found at once: a 32-ary tree of bits.

The next access of a resident file is a position no other file has, so this replaces a priority queue:
nothing is ever stale, and adding, removing and finding cost the depth of the tree (5 for 10 M).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replay.kernels.jit import kernel
from replay.planner import IntArray

_BITS = 5
_LOW = 31


class Positions(NamedTuple):
    """`words`: 32 bits each, all levels in one array; `level`: where each level starts, leaves first."""

    words: IntArray
    level: IntArray


def no_positions(n: int) -> Positions:
    """An empty set that can hold 0 … n - 1."""
    sizes = [max(1, -(-n >> _BITS))]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] >> _BITS))
    sizes = [size + 1 for size in sizes]
    return Positions(np.zeros(sum(sizes), np.int64), np.cumsum([0, *sizes[:-1]]).astype(np.int64))


@kernel
def add(positions: Positions, position: int) -> None:
    """Put `position` in."""
    for start in positions.level:
        word = position >> _BITS
        positions.words[start + word] |= 1 << (position & _LOW)
        position = word


@kernel
def discard(positions: Positions, position: int) -> None:
    """Take `position` out; nothing happens if it is not in."""
    for start in positions.level:
        word = position >> _BITS
        positions.words[start + word] &= ~(1 << (position & _LOW))
        if positions.words[start + word] != 0:
            return
        position = word


@kernel
def farthest(positions: Positions) -> int:
    """The largest position, or -1 of an empty set."""
    position = 0
    for depth in range(positions.level.size - 1, -1, -1):
        bits = positions.words[positions.level[depth] + position]
        if bits == 0:
            return -1
        top = 0
        for step in (16, 8, 4, 2, 1):
            if bits >> (top + step) != 0:
                top += step
        position = (position << _BITS) | top
    return position
