"""Weighted rendezvous hashing: each key prefers names in an order of its own, the same on every machine.

A name comes first for a share of the keys that is proportional to its weight. If a name is removed, only the
keys that had it first choose another. Source: Schindelhauer and Schomaker, "Weighted distributed hash
tables" (SPAA 2005), with the logarithmic form of the score.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from features.common.arrays import FloatArray
from features.common.hashes import Words, mixed

KeyArray = Words


def key_of(text: str) -> int:
    """64 bits of the sha256 of `text`."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "little")


def keys_of(texts: Iterable[str]) -> KeyArray:
    """`key_of` of each text, uint64[n]."""
    return np.fromiter((key_of(text) for text in texts), np.uint64)


def scores(keys: KeyArray, names: Sequence[str], weights: Sequence[float]) -> FloatArray:
    """How much each key prefers each name, float[n, s]; higher is better. Weights are above 0."""
    salted = keys[:, None] ^ keys_of(names)[None, :]
    uniform = (mixed(salted) >> np.uint64(11)).astype(np.float64) + 0.5
    return np.asarray(weights, np.float64) / -np.log(uniform / 2.0**53)
