"""How many distinct members a set has, from five words of 64 bits: a multiresolution bitmap.

Word l holds the members whose hash falls to level l: all at level 0, every 4th at level 1, every 16th at
level 2, and so on. Such a member sets one bit of the word. The sketch of a union is the bitwise or, in any
order and however often: so an incremental state and a rebuild agree to the bit, which sampled or ordered
sketches do not promise. Estimates are whole numbers; their standard error is about 12 % up to a hundred
members (two are told apart in 98 of 100 cases) and up to 20 % beyond; they saturate near 68 000. After Estan,
Varghese and Fisk, "Bitmap algorithms for counting active flows on high speed links", IMC 2003.
"""

from __future__ import annotations

import math

BITS = 64
LEVELS = 5
LEVEL_SHIFT = 2
"""A level keeps one of 2^2 members of the level before."""

FULLEST = 56
"""A word with more bits set than this is too full to be trusted; the next level is taken."""

ESTIMATES: tuple[tuple[int, ...], ...] = tuple(
    tuple(
        round(2 ** (LEVEL_SHIFT * level) * -BITS * math.log((BITS - n_set) / BITS)) for n_set in range(BITS)
    )
    for level in range(LEVELS)
)
"""By level and bits set (at most 63): the number of members that set so many bits, by linear counting."""
