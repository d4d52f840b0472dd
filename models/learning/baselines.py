"""Baselines that a model must beat: scores that need no training.

Each is also a learner whose fit changes nothing, so that it can be calibrated and planned by like a model
(`models.learning.fit.fit_calibrated`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import numpy as np
import pandas as pd

from features.arrays import FloatArray
from features.spec import DATASET_PREFIX, FeatureSpec
from features.units import duration_label
from models.learning.learners import WithKnobs

_MOST_READS = 3
"""The largest value of S3-FIFO's counter, which has two bits."""


class Baseline(Protocol):
    """A score in [0, 1] of a few columns; it is its own learner."""

    @property
    def name(self) -> str:
        """The name in reports."""
        ...

    @property
    def knobs(self) -> Mapping[str, float]:
        """The settings, for the record."""
        ...

    def score(self, x: pd.DataFrame) -> FloatArray:
        """One score per row; higher means likelier to be read."""
        ...

    def fit(self, x: pd.DataFrame, y: FloatArray) -> Self:
        """Itself."""
        ...


@dataclasses.dataclass(frozen=True)
class _Untrained(WithKnobs):
    def fit(self, x: pd.DataFrame, y: FloatArray) -> Self:
        """Itself."""
        del x, y
        return self


@dataclasses.dataclass(frozen=True)
class Recency(_Untrained):
    """Higher for files read more recently; lowest for files never read."""

    name: str = "recency"

    def score(self, x: pd.DataFrame) -> FloatArray:
        """In (0, 1]: 1 / (1 + hours since the last read); 0 for files never read."""
        return _recency_score(x, "recency_s")


@dataclasses.dataclass(frozen=True)
class DecayedFrequency(_Untrained):
    """The count of reads, decayed with a half-life."""

    half_life_s: int
    name: str = "decayed_frequency"

    def score(self, x: pd.DataFrame) -> FloatArray:
        """In [0, 1): n / (1 + n) for the decayed count n."""
        return _saturated(x, f"decayed_{duration_label(self.half_life_s)}")


@dataclasses.dataclass(frozen=True)
class DatasetPopularity(_Untrained):
    """The decayed count of the dataset's reads: all that is known of a file that was never read."""

    half_life_s: int
    name: str = "dataset_popularity"

    def score(self, x: pd.DataFrame) -> FloatArray:
        """In [0, 1): n / (1 + n) for the dataset's decayed count n."""
        return _saturated(x, f"{DATASET_PREFIX}decayed_{duration_label(self.half_life_s)}")


@dataclasses.dataclass(frozen=True)
class S3FifoCounts(_Untrained):
    """S3-FIFO's order at one time: main queue before small queue, then by the capped counter, then by age.

    A file read in more than one cycle of the window counts as in the main queue. Its counter is the number of
    reads after the first, at most 3.
    """

    window_s: int
    name: str = "s3fifo_counts"

    def score(self, x: pd.DataFrame) -> FloatArray:
        """In [0, 1]: (queue and counter + recency score) / 5; 0 for files never read."""
        window = duration_label(self.window_s)
        again = _number(x, f"n_access_{window}") - 1
        counter = np.clip(again, 0, _MOST_READS)
        in_main = _number(x, f"n_active_{window}") > 1
        level = np.where(in_main, 1 + counter, 0.0)
        return np.asarray((level + _recency_score(x, "recency_s")) / (2 + _MOST_READS), dtype=np.float64)


def baselines(spec: FeatureSpec, horizon_s: int) -> list[Baseline]:
    """All baselines, with the half-life and the window nearest to the horizon."""
    window_s = _nearest(spec.windows_s, horizon_s)
    counted: list[Baseline] = [Recency(), S3FifoCounts(window_s)]
    if not spec.half_lives_s:
        return counted
    half_life_s = _nearest(spec.half_lives_s, horizon_s)
    return [*counted, DecayedFrequency(half_life_s), DatasetPopularity(half_life_s)]


def _nearest(durations: Sequence[int], wanted: int) -> int:
    return min(durations, key=lambda d: (abs(np.log(d / wanted)), d))


def _number(x: pd.DataFrame, column: str) -> FloatArray:
    return np.asarray(np.nan_to_num(x[column].to_numpy(dtype=np.float64), nan=0.0), dtype=np.float64)


def _saturated(x: pd.DataFrame, column: str) -> FloatArray:
    count = _number(x, column)
    return np.asarray(count / (1 + count), dtype=np.float64)


def _recency_score(x: pd.DataFrame, column: str) -> FloatArray:
    hours = x[column].to_numpy(dtype=np.float64) / 3600
    return np.asarray(np.nan_to_num(1 / (1 + hours), nan=0.0), dtype=np.float64)
