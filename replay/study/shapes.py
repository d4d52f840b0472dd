"""Distributions of a trace's files: by size, number of accesses, and lifetime."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.times import DAY_S
from replay.study.use import Use, total_by

BINS_PER_DECADE = 2
RANK_POINTS = 200
MEAN_DAYS = 14
HOTNESS_CLASSES = ((1, 1), (2, 2), (3, 5), (6, 10), (11, 100), (101, 1000), (1001, None))


class Sizes(NamedTuple):
    """Files that were read, and their bytes, by size; bin k is edges_bytes[k] … edges_bytes[k + 1]."""

    edges_bytes: FloatArray
    files: IntArray
    footprint_bytes: IntArray


@dataclasses.dataclass(frozen=True)
class Hotness:
    """The files that were read `least` to `most` times (None: no limit)."""

    least: int
    most: int | None
    files: int
    accesses: int
    requested_bytes: int


class Ranks(NamedTuple):
    """Accesses of the file of each `rank`; rank 1 is the most read. Up to 200 ranks, evenly spaced in log."""

    rank: IntArray
    accesses: IntArray


class Lifetimes(NamedTuple):
    """Hits by the lifetime of their file (first to last access), and by its age at the hit (since the first).

    Entry k of each array is for k to k + 1 days. Bytes are those served from the cache.
    """

    hits_by_lifetime: IntArray
    hit_bytes_by_lifetime: IntArray
    hits_by_age: IntArray
    hit_bytes_by_age: IntArray


@dataclasses.dataclass(frozen=True)
class Quadrant:
    """Files of one class of size and of use, and what the cache served of them."""

    size: str
    use: str
    files: int
    accesses: int
    footprint_bytes: int
    hits: int
    hit_bytes: int


def sizes(use: Use) -> Sizes:
    """The size distribution of the files read; empty files count as one byte."""
    size = use.trace.size_bytes[use.accesses > 0]
    decade = np.log10(np.maximum(size, 1))
    low, high = int(np.floor(decade.min())), int(np.floor(decade.max())) + 1
    n_bins = (high - low) * BINS_PER_DECADE
    edges = 10.0 ** (low + np.arange(n_bins + 1) / BINS_PER_DECADE)
    bin_of = (np.searchsorted(edges, np.maximum(size, 1), side="right") - 1).astype(np.int32)
    return Sizes(edges, np.bincount(bin_of, minlength=n_bins), total_by(bin_of, size, n_bins))


def hotness(use: Use) -> list[Hotness]:
    """Files, accesses and bytes by how often a file is read; without classes that have no file."""
    rows = []
    for least, most in HOTNESS_CLASSES:
        in_class = (use.accesses >= least) & (use.accesses <= (most or np.iinfo(np.int64).max))
        if in_class.any():
            accesses, requested = use.accesses[in_class], use.requested_bytes[in_class]
            rows.append(Hotness(least, most, int(in_class.sum()), int(accesses.sum()), int(requested.sum())))
    return rows


def ranks(use: Use) -> Ranks:
    """Accesses against rank, for the log-log plot."""
    falling = np.sort(use.accesses[use.accesses > 0])[::-1]
    rank = np.unique(np.geomspace(1, falling.size, RANK_POINTS).round().astype(np.int64))
    return Ranks(rank, falling[rank - 1])


def lifetimes(use: Use) -> Lifetimes:
    """Hits by the lifetime of their file and by its age."""
    read = use.accesses > 0
    item, size = use.trace.item, use.trace.size_bytes
    days = ((use.last_s - use.first_s) // DAY_S).astype(np.int32)
    n_days = int(days[read].max()) + 1
    of_hits = item[use.hit]
    age = ((use.trace.time_s[use.hit] - use.first_s[of_hits]) // DAY_S).astype(np.int32)
    return Lifetimes(
        hits_by_lifetime=total_by(days, use.hits, n_days),
        hit_bytes_by_lifetime=total_by(days, use.hit_bytes, n_days),
        hits_by_age=np.bincount(age, minlength=n_days),
        hit_bytes_by_age=total_by(age, size[of_hits], n_days),
    )


def quadrants(use: Use, *, small_file_bytes: int, many_accesses: int) -> list[Quadrant]:
    """The four kinds of files: small or large (above `small_file_bytes`), read seldom or often."""
    small = use.trace.size_bytes <= small_file_bytes
    often = use.accesses >= many_accesses
    read = use.accesses > 0
    return [
        _quadrant(use, size, how, read & of_size & of_use)
        for size, of_size in (("small", small), ("large", ~small))
        for how, of_use in (("few accesses", ~often), ("many accesses", often))
    ]


def _quadrant(use: Use, size: str, how: str, inside: BoolArray) -> Quadrant:
    columns = (use.accesses, use.trace.size_bytes, use.hits, use.hit_bytes)
    return Quadrant(size, how, int(inside.sum()), *(int(column[inside].sum()) for column in columns))


def running_mean(per_day: IntArray | FloatArray) -> FloatArray:
    """The mean of each day and the `MEAN_DAYS` - 1 before it; at the beginning, of the days there are."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(per_day)])
    end = np.arange(1, per_day.size + 1)
    begin = np.maximum(end - MEAN_DAYS, 0)
    return np.asarray((total[end] - total[begin]) / (end - begin), np.float64)
