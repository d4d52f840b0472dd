"""A popularity series as a trace: whole datasets of size 1, each read at most once per week.

Shared by tests/models/series and bench/series_replay.py.
"""

from __future__ import annotations

import hashlib

import numpy as np

from models.series.series import Series
from replay.trace import Trace


def weekly_trace(series: Series) -> Trace:
    """One access per (dataset, week) pair with reads; item i is dataset i of `series.names`.

    The accesses of a week are a second apart, in the order of the sha256 of `week:name`: the same in every
    run, and independent of the order of the source.
    """
    digests = [
        hashlib.sha256(f"{week}:{series.names[code]}".encode()).hexdigest()
        for code, week in zip(series.code.tolist(), series.unit.tolist(), strict=True)
    ]
    order = np.lexsort((np.array(digests), series.unit))
    week = series.unit[order]
    place = np.arange(week.size) - np.searchsorted(week, week)
    time_s = week * series.unit_s + place
    return Trace(time_s, series.code[order].astype(np.int32), np.ones(len(series.names), np.int64))
