"""The two-week running mean of daily numbers."""

from __future__ import annotations

import numpy as np

from features.common.arrays import FloatArray, IntArray

MEAN_DAYS = 14


def running_mean(per_day: IntArray, *, n_days: int = MEAN_DAYS) -> FloatArray:
    """The mean of each day and the `n_days` - 1 before it; at the beginning, of the days there are."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(per_day)])
    end = np.arange(1, per_day.size + 1)
    begin = np.maximum(end - n_days, 0)
    return np.asarray((total[end] - total[begin]) / (end - begin), np.float64)
