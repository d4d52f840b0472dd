"""`features.sketch` as Spark expressions on longs, which hash aggregation supports."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from features.sketch import BITS, ESTIMATES, FULLEST, LEVEL_SHIFT, LEVELS
from features.spark.grid import long_array


def word_names(of: str) -> list[str]:
    """Names of the columns with the sketch of `of`: `users_0` …"""
    return [f"{of}_{level}" for level in range(LEVELS)]


def words(member: Column, of: str) -> list[Column]:
    """The sketch of the set {member}, as columns `word_names(of)`; of the empty set if it is null.

    `member`: a string, or another type that xxhash64 takes.
    """
    hash64 = F.xxhash64(member)
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), F.pmod(hash64, F.lit(BITS)).cast("int"))
    rest = F.shiftrightunsigned(hash64, BITS.bit_length() - 1)
    return [
        F.when(member.isNotNull() & (F.pmod(rest, F.lit(2 ** (LEVEL_SHIFT * level))) == 0), bit)
        .otherwise(F.lit(0).cast("long"))
        .alias(name)
        for level, name in enumerate(word_names(of))
    ]


def union(of: str) -> list[Column]:
    """Aggregates for the sketch of the union of a group's sets."""
    return [F.bit_or(name).alias(name) for name in word_names(of)]


def estimate(levels: list[Column]) -> Column:
    """The estimated number of distinct members (long) from the words of a sketch."""
    counts = [F.bit_count(word) for word in levels]
    estimated = _by_level(LEVELS - 1, counts[-1])
    for level in reversed(range(LEVELS - 1)):
        estimated = F.when(counts[level] <= FULLEST, _by_level(level, counts[level])).otherwise(estimated)
    return estimated


def _by_level(level: int, n_set: Column) -> Column:
    return F.get(long_array(ESTIMATES[level]), F.least(n_set, F.lit(BITS - 1)).cast("int"))
