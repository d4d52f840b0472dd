"""Day, night and weekend: a clock on which work proceeds at a constant rate."""

from __future__ import annotations

import numpy as np

from features.common.arrays import FloatArray
from replay.workload.config import WorkloadConfig

_BUSIEST_HOUR = 14


class Rhythm:
    """Conversion between days from the start (floats, UTC) and work done (1 per average weekday).

    It covers the days of `config`, and those before them that its habits need; times outside are clipped to
    the nearer end. Work counts from the start of the days. `total`: that of the days; `before`: the earlier.
    """

    def __init__(self, config: WorkloadConfig) -> None:
        warm_hours = 0 if config.habits is None else 24 * config.habits.warm_days
        hours = np.arange(-warm_hours, 24 * config.days)
        since_epoch = config.start_s / 3600 + hours
        # 1970-01-01 was a Thursday: days 2 and 3 of its week are the weekend.
        weekend = np.isin(since_epoch // 24 % 7, (2, 3))
        mean, swing = (1 + config.night_factor) / 2, (1 - config.night_factor) / 2
        pace = mean + swing * np.cos(2 * np.pi * (since_epoch % 24 - _BUSIEST_HOUR) / 24)
        pace = pace / mean * np.where(weekend, config.weekend_factor, 1.0)
        self._day = np.append(hours, hours[-1] + 1) / 24
        work = np.concatenate([[0.0], np.cumsum(pace) / 24])
        self.before = float(work[warm_hours])
        self._work = work - self.before
        self.total = float(self._work[-1])

    def work(self, day: FloatArray) -> FloatArray:
        """Work done up to each `day`."""
        work: FloatArray = np.interp(day, self._day, self._work)
        return work

    def day(self, work: FloatArray) -> FloatArray:
        """The day by which `work` is done."""
        day: FloatArray = np.interp(work, self._work, self._day)
        return day
