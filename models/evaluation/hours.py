"""The core-hours that jobs need for their reads, waiting included, day by day of a replay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray
from features.common.times import DAY_S
from replay.result import Result
from replay.trace import Trace


class HoursPerByte(NamedTuple):
    """Core-hours per byte of each file, float64[m]: where it comes from its origin, and from the cache."""

    missed: FloatArray
    hit: FloatArray


def daily_hours(trace: Trace, result: Result, hit: BoolArray, per_byte: HoursPerByte) -> FloatArray:
    """Core-hours per day of `result.daily`, float64[days]; `hit`: bool[n], for all accesses of `trace`."""
    first = trace.n_accesses - result.requests
    item, days = trace.item[first:], result.daily.day
    rate = np.where(hit[first:], per_byte.hit[item], per_byte.missed[item])
    day = trace.time_s[first:] // DAY_S - days[0]
    hours: FloatArray = np.bincount(day, weights=rate * trace.size_bytes[item], minlength=days.size)
    return hours
