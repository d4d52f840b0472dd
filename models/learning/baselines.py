"""Baselines that a model must beat: scores that need no training.

Each is also a learner whose fit changes nothing, so that it can be calibrated and planned by like a model
(`models.learning.fit.fit_calibrated`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import pandas as pd

from features.common.arrays import FloatArray
from features.spec import GAPS, HALF_LIVES_S, HOUR_S, FeatureSpec
from models.learning.learners import Learner, WithKnobs

RECENCY = "recency"
"""Name of the score that serves where labels are few; a bundle has no file of it."""
WINDOWS_S = tuple(hours * HOUR_S for hours in (1, 6, 24, 72, 168, 336, 720))
"""Windows that S3-FIFO's counts are taken over."""
_LAST_GAPS = tuple(f"gap_{k}_s" for k in range(GAPS))
_MOST_READS = 1 + GAPS
"""Reads of a window that are known: enough for S3-FIFO's counter of two bits, which leaves out the first."""


@dataclasses.dataclass(frozen=True)
class Untrained(WithKnobs):
    """A learner that learns nothing: its scores of the rows it was fitted on are those of any other row.

    They are in [0, 1], and of a few columns.
    """

    def fit(self, x: pd.DataFrame, y: FloatArray) -> Self:
        """Itself."""
        del x, y
        return self


@dataclasses.dataclass(frozen=True)
class Recency(Untrained):
    """Higher for files read more recently; lowest for files never read."""

    name: str = RECENCY

    def score(self, x: pd.DataFrame) -> FloatArray:
        """In (0, 1]: 1 / (1 + hours since the last read); 0 for files never read."""
        return _recency_score(x)


@dataclasses.dataclass(frozen=True)
class DecayedCount(Untrained):
    """The count of a file's reads, decayed with a half-life; `of`: "dataset_", of its dataset's instead.

    The latter is all that is known of a file that was never read.
    """

    half_life_s: float
    name: str
    of: str = ""

    @property
    def knobs(self) -> Mapping[str, float]:
        """The half-life."""
        return {"half_life_s": self.half_life_s}

    def score(self, x: pd.DataFrame) -> FloatArray:
        """In [0, 1): n / (1 + n) for the decayed count n."""
        column = x[f"{self.of}decayed_{self.half_life_s / HOUR_S:.0f}h"]
        count = np.nan_to_num(column.to_numpy(dtype=np.float64), nan=0.0)
        return np.asarray(count / (1 + count), dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class S3FifoCounts(Untrained):
    """S3-FIFO's order at one time: main queue before small queue, then by the capped counter, then by age.

    A file read more than once in the window counts as in the main queue. Its counter is the number of reads
    after the first, at most 3. Reads are counted by the time since the last one and the gaps before it.
    """

    window_s: float
    name: str = "s3fifo_counts"

    def score(self, x: pd.DataFrame) -> FloatArray:
        """In [0, 1]: (queue and counter + recency score) / 5; 0 for files never read."""
        age_s, n_reads = np.zeros(len(x)), np.zeros(len(x), np.int64)
        for name in ("recency_s", *_LAST_GAPS):
            age_s += x[name].to_numpy(dtype=np.float64)
            n_reads += age_s <= self.window_s
        level = np.where(n_reads > 1, n_reads, 0)
        return np.asarray((level + _recency_score(x)) / (1 + _MOST_READS), dtype=np.float64)


def baselines(spec: FeatureSpec, horizon_s: int) -> list[Learner]:
    """All baselines, with the half-life and the window nearest to the horizon."""
    half_life_s = _nearest(HALF_LIVES_S, horizon_s)
    return [
        Recency(),
        S3FifoCounts(_nearest(WINDOWS_S, horizon_s)),
        DecayedCount(half_life_s, "decayed_frequency"),
        DecayedCount(half_life_s, "dataset_popularity", of="dataset_"),
    ]


def _nearest(durations: Sequence[float], target: float) -> float:
    return min(durations, key=lambda d: (abs(np.log(d / target)), d))


def _recency_score(x: pd.DataFrame) -> FloatArray:
    hours = x["recency_s"].to_numpy(dtype=np.float64) / HOUR_S
    return np.asarray(np.nan_to_num(1 / (1 + hours), nan=0.0), dtype=np.float64)
