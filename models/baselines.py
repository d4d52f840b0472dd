"""What a model must beat: scores that need no learning."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pandas as pd

from features.spec import FeatureSpec
from features.units import duration_label

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Recency:
    """The later read, the higher. Never read is lowest."""

    name: str = "recency"

    def score(self, x: pd.DataFrame) -> Floats:
        """In (0, 1]: 1 / (1 + recency in hours); 0 where nothing was ever read."""
        hours = x["recency_s"].to_numpy(dtype=np.float64) / 3600
        return np.asarray(np.nan_to_num(1 / (1 + hours), nan=0.0), dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class DecayedFrequency:
    """Reads that fade with a half-life: the more and the later, the higher."""

    half_life_s: int
    name: str = "decayed_frequency"

    def score(self, x: pd.DataFrame) -> Floats:
        """In [0, 1): n / (1 + n) of the decayed count n."""
        count = x[f"decayed_{duration_label(self.half_life_s)}"].to_numpy(dtype=np.float64)
        return np.asarray(np.nan_to_num(count / (1 + count), nan=0.0), dtype=np.float64)


def baselines(spec: FeatureSpec, horizon_s: int) -> list[Recency | DecayedFrequency]:
    """Recency, and decayed frequency with the half-life nearest to the horizon."""
    if not spec.half_lives_s:
        return [Recency()]
    nearest = min(spec.half_lives_s, key=lambda h: (abs(np.log(h / horizon_s)), h))
    return [Recency(), DecayedFrequency(nearest)]
