"""Belady's policy, which knows the future, for whole files: evict the file with the farthest next access.

With files of different sizes it is no bound on hits; its bytes are within 1e-4 of `replay.bounds`.

The farthest next access is found in a set of positions, a 64-ary tree of bits.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.jit import bare, inner
from replay.kernels.accesses import Accesses, accesses, fetch
from replay.trace import IndexArray, Trace

_WORD_BITS = 64
_LOG2_WORD_BITS = 6


class Positions(NamedTuple):
    """`words`: 64 bits each, all levels in one array; `level`: where each level starts, leaves first.

    Bit b of word w says whether position 64 w + b is in the set, on the levels above the leaves whether
    word 64 w + b of the level below has a bit set.
    """

    words: IntArray
    level: IntArray


def no_positions(n: int) -> Positions:
    """An empty set that can hold 0 … n - 1."""
    sizes = [max(1, -(-n // _WORD_BITS))]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // _WORD_BITS))
    sizes = [size + 1 for size in sizes]
    return Positions(np.zeros(sum(sizes), np.int64), np.cumsum([0, *sizes[:-1]]).astype(np.int64))


@inner
def _word(position: int) -> int:
    """The word of its level that holds `position`."""
    return position >> _LOG2_WORD_BITS


@inner
def _bit(position: int) -> int:
    """The word in which only the bit of `position` is set."""
    return 1 << (position & (_WORD_BITS - 1))


@inner
def _highest_bit(word: int) -> int:
    """The number of the highest bit set in a `word` that is not 0."""
    highest = 0
    # The shift keeps the sign, so that a word with bit 63 set, which is negative, never becomes 0.
    for step in (32, 16, 8, 4, 2, 1):
        if word >> (highest + step) != 0:
            highest += step
    return highest


@bare
def add(positions: Positions, position: int) -> None:
    """Put `position` in."""
    for start in positions.level:
        at = start + _word(position)
        before = positions.words[at]
        positions.words[at] = before | _bit(position)
        if before != 0:
            return
        position = _word(position)


@bare
def expect(positions: Positions, position: int) -> None:
    """Begin to load what `add` of `position` will touch."""
    fetch(positions.words, _word(position))


@bare
def discard(positions: Positions, position: int) -> None:
    """Take `position` out, if it is in."""
    for start in positions.level:
        at = start + _word(position)
        positions.words[at] &= ~_bit(position)
        if positions.words[at] != 0:
            return
        position = _word(position)


@bare
def farthest(positions: Positions) -> int:
    """The largest position, or -1 if the set is empty."""
    position = 0
    for depth in range(positions.level.size - 1, -1, -1):
        word = positions.words[positions.level[depth] + position]
        if word == 0:
            return -1
        position = position * _WORD_BITS + _highest_bit(word)
    return position


class Residents(NamedTuple):
    """`resident`: per file; `dead`: a stack of the resident files that are never read again."""

    resident: BoolArray
    dead: IndexArray


def farthest_goes(bypass: bool, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the file with the farthest next access until the new one fits. Returns the peak usage in bytes.

    `bypass`: a file whose own next access is the farthest is read past the cache.
    """
    m = trace.n_items
    residents = Residents(np.zeros(m, np.bool_), np.empty(m, np.int32))
    positions = no_positions(trace.n_accesses)
    return int(_run(accesses(trace, capacity_bytes, hit), trace.following, bypass, positions, residents))


@bare
def _run(
    reads: Accesses, following: IndexArray, bypass: bool, positions: Positions, residents: Residents
) -> int:
    item, size, capacity, hit = reads
    resident, dead = residents
    n = item.size
    n_dead = 0
    used = 0
    peak = 0
    for i in range(n):
        file = item[i]
        if resident[file]:
            hit[i] = True
        else:
            need = size[file]
            if need > capacity:
                continue
            while used + need > capacity:
                if n_dead > 0:
                    n_dead -= 1
                    victim = dead[n_dead]
                else:
                    last = farthest(positions)
                    if bypass and following[i] >= last:
                        break
                    discard(positions, last)
                    victim = item[last]
                resident[victim] = False
                used -= size[victim]
            if used + need > capacity:
                continue
            resident[file] = True
            used += need
            peak = max(peak, used)
        if following[i] < n:
            add(positions, int(following[i]))
        else:
            dead[n_dead] = file
            n_dead += 1
    return peak


clairvoyant = partial(farthest_goes, False)
"""Every file that fits the cache is admitted."""
clairvoyant_bypass = partial(farthest_goes, True)
"""Files that would be evicted first are not admitted."""
