"""When things happen in a region: day, night and weekend, and the interest in each dataset.

`Rhythm` is a clock on which work proceeds at a constant rate. The interest in a dataset is the rate at which
sessions begin at it: it decays from the dataset's birth until a new version replaces it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray, IntArray
from replay.workload.catalogue import REREAD, Datasets, knob
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


SETTLE_DAYS = 0.5
"""Days from the first file of a dataset until it is complete and announced."""

_NO_DECAY_DAYS = 1e6


class Interest(NamedTuple):
    """One entry per dataset, in work units of the rhythm.

    From `begin` to before `end` the rate at time t is weight · (steady + (1 - steady) · exp(-(t - born) /
    decay)). Only the rates' ratios within a category count; they are 0 for datasets that are not read again.
    """

    weight: FloatArray
    born: FloatArray
    begin: FloatArray
    end: FloatArray
    decay: FloatArray
    steady: FloatArray

    @classmethod
    def of(cls, config: WorkloadConfig, datasets: Datasets, rhythm: Rhythm) -> Interest:
        """The interest in each of `datasets`, from as long before the start as habits are generated."""
        announced = datasets.born_day + SETTLE_DAYS
        begin = rhythm.work(announced)
        earlier = np.minimum(announced - rhythm.day(begin), 0.0)
        return cls(
            weight=np.where(datasets.role == REREAD, datasets.weight, 0.0),
            born=begin + earlier,
            begin=begin,
            end=np.maximum(begin, rhythm.work(datasets.dies_day)),
            decay=np.minimum(knob(config, datasets, "decay_days"), _NO_DECAY_DAYS),
            steady=knob(config, datasets, "steady_share"),
        )

    def mass(self, since: FloatArray | float, until: FloatArray | float) -> FloatArray:
        """The rate summed up from `since` to `until`, per dataset."""
        lasting, passing = self._parts(since, until)
        mass: FloatArray = self.weight * (lasting + passing)
        return mass

    def taken(self, dataset: IntArray) -> Interest:
        """The entries of `dataset`."""
        return Interest(*(column[dataset] for column in self))

    def times(self, rng: np.random.Generator) -> FloatArray:
        """A random time per entry, by its rate."""
        lasting, passing = self._parts(-np.inf, np.inf)
        share = rng.random(lasting.size)
        even = self.begin + share * (self.end - self.begin)
        fall = -np.expm1(-(self.end - self.begin) / self.decay)
        early = self.begin - self.decay * np.log1p(-share * fall)
        is_even = rng.random(share.size) * (lasting + passing) < lasting
        return np.where(is_even, even, early)

    def _parts(self, since: FloatArray | float, until: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Per unit of weight, what the steady and the decaying part of the rate sum up to."""
        begin, end = (np.clip(edge, self.begin, self.end) for edge in (since, until))
        left = np.exp(-(begin - self.born) / self.decay)
        faded = -left * self.decay * np.expm1(-(end - begin) / self.decay)
        return self.steady * (end - begin), (1 - self.steady) * faded
