"""Sketches of distinct members in plain Python, written from the docstring of `features.sketch`."""

from __future__ import annotations

import math
from collections.abc import Iterable

Words = tuple[int, ...]
N_WORDS = 5
EMPTY: Words = (0,) * N_WORDS


def sketch(hashes: Iterable[int]) -> Words:
    """The words (unsigned) of the set of members with these 64-bit hashes."""
    words = [0] * N_WORDS
    for hash64 in hashes:
        bit, rest = hash64 % 64, hash64 % 2**64 // 64
        for level in range(N_WORDS):
            if rest % 4**level == 0:
                words[level] |= 1 << bit
    return tuple(words)


def union(sets: Iterable[Words]) -> Words:
    """The words of the union of the sets with these words."""
    found = EMPTY
    for words in sets:
        found = tuple(a | b for a, b in zip(found, words, strict=True))
    return found


def estimate(words: Words) -> int:
    """The number of distinct members, by linear counting in the first word with at most 56 bits set."""
    counts = [bin(word).count("1") for word in words]
    level = next((level for level, n_set in enumerate(counts) if n_set <= 56), N_WORDS - 1)
    return round(4**level * -64 * math.log((64 - min(counts[level], 63)) / 64))
