"""Training rows of a series: features of past units, and the reads that followed up to now."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from features.common.arrays import BoolArray, FloatArray, IntArray
from models.learning.frame import sampled
from models.learning.learners import LightGBM, Scorer
from models.series.features import SeriesFeatures
from models.series.series import Series

_TRAINING_UNITS = 52
_LONG_UNITS = 400
_SPREAD_UNITS = 100
_MIN_HISTORY = 4
_MIN_ROWS = 50
_MAX_PAIRS = 400_000


@dataclasses.dataclass(frozen=True)
class Rows:
    """Features `x` of (dataset, unit) pairs, with the dataset's `code` and the `unit` of each row."""

    x: pd.DataFrame
    code: IntArray
    unit: IntArray


class Past:
    """Training rows of a series; features are computed once per unit."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self._features = SeriesFeatures(series)
        n_pairs = int(np.minimum(series.now - series.born + 1, _TRAINING_UNITS).sum())
        self._sampled = sampled(series.names, "", _MAX_PAIRS / max(n_pairs, 1))
        self._tables: dict[int, tuple[pd.DataFrame, IntArray]] = {}

    def present(self) -> Rows:
        """A row per dataset, now."""
        code = np.arange(len(self.series.names))
        return Rows(self._features.at(self.series.now), code, np.full(len(code), self.series.now))

    def matured(self, n_units: int) -> Rows | None:
        """Rows of the last 52 units whose next `n_units` are known; None if there are no such units.

        A unit has a row per dataset known by then, or per dataset of a sample if there are very many.
        """
        last = self.series.now - n_units
        units = range(max(last - _TRAINING_UNITS + 1, self.series.first + _MIN_HISTORY), last + 1)
        if not units:
            return None
        tables, codes = zip(*(self._table(unit) for unit in units), strict=True)
        when = np.repeat(np.asarray(units, np.int64), [len(code) for code in codes])
        return Rows(pd.concat(tables, ignore_index=True), np.concatenate(codes), when)

    def pairs(self, n_units: int) -> tuple[IntArray, IntArray]:
        """Codes and units like those of `matured`, but of up to 100 units spread over the last 400."""
        last = self.series.now - n_units
        first = max(self.series.first + _MIN_HISTORY, last - _LONG_UNITS + 1)
        units = np.unique(np.linspace(first, last, min(_SPREAD_UNITS, last - first + 1)).astype(np.int64))
        known = [np.flatnonzero((self.series.born <= unit) & self._sampled) for unit in units]
        return np.concatenate(known), np.repeat(units, [len(code) for code in known])

    def reads(self, rows: Rows, n_units: int) -> FloatArray:
        """Reads of each row in the `n_units` units that follow its own."""
        return self.series.reads_within(rows.code, rows.unit, n_units)

    def _table(self, unit: int) -> tuple[pd.DataFrame, IntArray]:
        if unit not in self._tables:
            code = self._features.known(unit)
            keep = self._sampled[code]
            self._tables[unit] = self._features.at(unit)[keep], code[keep]
        return self._tables[unit]


def fit_chance(x: pd.DataFrame, labels: BoolArray) -> Scorer | None:
    """Fit a classifier of few small trees, because popularity changes within a year.

    Random thresholds follow single datasets less, and rank a little better on public series. None if there
    are fewer than 50 rows or only one class.
    """
    if len(labels) < _MIN_ROWS or not 0 < labels.sum() < len(labels):
        return None
    min_rows = min(300, max(5, len(labels) // 100))
    learner = LightGBM(trees=150, leaves=6, min_rows=min_rows, rate=0.05, extra_trees=True)
    return learner.fit(x, labels.astype(np.float64))
