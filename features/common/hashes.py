"""Hashes of 64-bit words that are the same on every machine."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]


def mixed(words: Words) -> Words:
    """The finaliser of SplitMix64 (Steele et al., 2014) of each word; different words differ in it."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)), np.uint64)
