"""Sums per hour: what a replay keeps of the accesses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.jit import kernel
from features.common.times import HOUR_S
from replay.trace import ItemArray

# Columns of Tally.sums: hits; bytes requested, served from disk, and fetched from the origin.
HITS, REQUESTED, HIT_BYTES, FETCHED = range(4)


class Tally(NamedTuple):
    """`hour`: hours since 1970 that have an access, ascending; `sums`: int64[hours, 4].

    `first`: index of each hour's first access, then the number of accesses. `used`: bytes on disk after each
    access, summed over the hour: float64[hours], as 64 bits are too few for a large cache.
    """

    hour: IntArray
    first: IntArray
    sums: IntArray
    used: FloatArray


def empty_tally(time_s: IntArray) -> Tally:
    """A tally without counts for accesses at `time_s`, ascending."""
    starts = np.empty(max(1, _hours(time_s, np.zeros(0, np.int64))) + 1, np.int64)
    n = _hours(time_s, starts)
    starts[n] = time_s.size
    first = starts[: n + 1]
    return Tally(time_s[first[:-1]] // HOUR_S, first, np.zeros((n, 4), np.int64), np.zeros(n))


@kernel
def _hours(time_s: IntArray, starts: IntArray) -> int:
    n = 0
    last = np.int64(0)
    for i in range(time_s.size):
        hour = time_s[i] // HOUR_S
        if i == 0 or hour != last:
            if starts.size:
                starts[n] = i
            n += 1
            last = hour
    return n


@kernel
def tally_hits(tally: Tally, item: ItemArray, size: IntArray, hit: BoolArray) -> None:
    """Count accesses to whole files: `hit` marks those served from disk."""
    for hour in range(tally.hour.size):
        row = tally.sums[hour]
        for i in range(tally.first[hour], tally.first[hour + 1]):
            row[REQUESTED] += size[item[i]]
            if hit[i]:
                row[HITS] += 1
                row[HIT_BYTES] += size[item[i]]
            else:
                row[FETCHED] += size[item[i]]


@kernel
def tally_bytes(tally: Tally, item: ItemArray, size: IntArray, hit_bytes: IntArray) -> None:
    """Count accesses to parts of files: of each, `hit_bytes` were served from disk."""
    for hour in range(tally.hour.size):
        row = tally.sums[hour]
        for i in range(tally.first[hour], tally.first[hour + 1]):
            need = size[item[i]]
            row[REQUESTED] += need
            row[HITS] += hit_bytes[i] == need
            row[HIT_BYTES] += hit_bytes[i]
            row[FETCHED] += need - hit_bytes[i]
