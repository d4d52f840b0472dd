"""A set of positions 0 … n - 1 whose largest member is found at once: a 64-ary tree of bits.

The next access of a resident file is a position no other file has, so this replaces a priority queue: adding
touches one word as a rule, finding costs the depth of the tree (4 for 10 M). Positions that have gone by need
not be taken out: they are never the largest while a resident file has an access to come.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replay.kernels.ahead import fetch
from replay.kernels.jit import bare
from replay.planner import IntArray

_BITS = 6
_LOW = 63


class Positions(NamedTuple):
    """`words`: 64 bits each, all levels in one array; `level`: where each level starts, leaves first."""

    words: IntArray
    level: IntArray


def no_positions(n: int) -> Positions:
    """An empty set that can hold 0 … n - 1."""
    sizes = [max(1, -(-n >> _BITS))]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] >> _BITS))
    sizes = [size + 1 for size in sizes]
    return Positions(np.zeros(sum(sizes), np.int64), np.cumsum([0, *sizes[:-1]]).astype(np.int64))


@bare
def add(positions: Positions, position: int) -> None:
    """Put `position` in."""
    for start in positions.level:
        word = start + (position >> _BITS)
        before = positions.words[word]
        positions.words[word] = before | (1 << (position & _LOW))
        if before != 0:
            return
        position >>= _BITS


@bare
def expect(positions: Positions, position: int) -> None:
    """Begin to load what `add` of `position` will touch."""
    fetch(positions.words, position >> _BITS)


@bare
def discard(positions: Positions, position: int) -> None:
    """Take `position` out; nothing happens if it is not in."""
    for start in positions.level:
        word = start + (position >> _BITS)
        positions.words[word] &= ~(1 << (position & _LOW))
        if positions.words[word] != 0:
            return
        position >>= _BITS


@bare
def farthest(positions: Positions) -> int:
    """The largest position, or -1 of an empty set."""
    position = 0
    for depth in range(positions.level.size - 1, -1, -1):
        bits = positions.words[positions.level[depth] + position]
        if bits == 0:
            return -1
        top = 0
        # The shift keeps the sign, so a set bit 63 counts as every step does.
        for step in (32, 16, 8, 4, 2, 1):
            if bits >> (top + step) != 0:
                top += step
        position = (position << _BITS) | top
    return position
