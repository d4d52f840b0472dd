"""Hashes that are the same on every machine: xxHash64 of bytes, and SplitMix64 of 64-bit words."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MASK = 2**64 - 1
SPARK_SEED = 42
"""The seed of Spark's `xxhash64`."""


def _rotl(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _round(acc: int, lane: int) -> int:
    return _rotl((acc + lane * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(data: bytes, seed: int) -> int:
    """xxHash64 of `data`, from its specification, as an unsigned number."""
    n, at = len(data), 0
    if n >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed & _MASK, (seed - _P1) & _MASK]
        while n - at >= 32:
            lanes = [_round(v, _word(data, at + 8 * i, 8)) for i, v in enumerate(lanes)]
            at += 32
        acc = sum(_rotl(v, by) for v, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            acc = ((acc ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        acc = (seed + _P5) & _MASK
    acc = (acc + n) & _MASK
    while n - at >= 8:
        acc = (_rotl(acc ^ _round(0, _word(data, at, 8)), 27) * _P1 + _P4) & _MASK
        at += 8
    if n - at >= 4:
        acc = (_rotl(acc ^ (_word(data, at, 4) * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        acc = _rotl(acc ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    acc = (acc ^ (acc >> 33)) * _P2 & _MASK
    acc = (acc ^ (acc >> 29)) * _P3 & _MASK
    return acc ^ (acc >> 32)


def _word(data: bytes, at: int, n: int) -> int:
    return int.from_bytes(data[at : at + n], "little")


def mixed(words: Words) -> Words:
    """The finaliser of SplitMix64 (Steele et al., 2014) of each word; different words differ in it."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)), np.uint64)
