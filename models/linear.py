"""Steady learners for short histories: a linear model on logarithms, and a blend of several learners."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from models.learners import CATEGORICAL, Learner, Scorer

Floats = npt.NDArray[np.float64]
_EPSILON = 1e-6


@dataclasses.dataclass(frozen=True)
class Linear:
    """Logistic regression on the logarithms of times and counts: steady where there is little to learn from.

    A missing time counts as twice the longest one seen. Words are left out.
    """

    c: float = 0.01
    name: str = "linear"

    @property
    def knobs(self) -> Mapping[str, float]:
        """The inverse strength of the L2 penalty."""
        return {"c": self.c}

    def fit(self, x: pd.DataFrame, y: Floats) -> FittedLinear:
        """Learn by L2-penalised log loss on standardised logarithms."""
        columns = [name for name in x.columns if name not in CATEGORICAL]
        raw = x[columns].to_numpy(dtype=np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a column may be all NaN
            missing = np.nan_to_num(2 * np.nanmax(raw, axis=0), nan=0.0)
        pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=self.c, max_iter=500))
        with threadpool_limits(1):  # sums in one order: the same input gives the same model
            pipeline.fit(_logs(raw, missing), y)
        return FittedLinear(pipeline, tuple(columns), missing)


@dataclasses.dataclass(frozen=True)
class FittedLinear:
    """A fitted `Linear`."""

    pipeline: Pipeline
    columns: tuple[str, ...]
    missing: Floats

    def score(self, x: pd.DataFrame) -> Floats:
        """Probabilities before calibration."""
        raw = x[list(self.columns)].to_numpy(dtype=np.float64)
        with threadpool_limits(1):
            scores = self.pipeline.predict_proba(_logs(raw, self.missing))[:, 1]
        return np.asarray(scores, dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class Blend:
    """The mean of several learners' log-odds: their errors differ, so it is steadier than each."""

    members: tuple[Learner, ...]

    @property
    def name(self) -> str:
        """The members' names, joined."""
        return "+".join(member.name for member in self.members)

    @property
    def knobs(self) -> Mapping[str, float]:
        """Every member's, with its name in front."""
        return {f"{m.name}.{key}": value for m in self.members for key, value in m.knobs.items()}

    def fit(self, x: pd.DataFrame, y: Floats) -> FittedBlend:
        """Fit every member on the same rows."""
        return FittedBlend(tuple(member.fit(x, y) for member in self.members))


@dataclasses.dataclass(frozen=True)
class FittedBlend:
    """A fitted `Blend`."""

    members: tuple[Scorer, ...]

    def score(self, x: pd.DataFrame) -> Floats:
        """Probabilities before calibration."""
        clipped = [np.clip(member.score(x), _EPSILON, 1 - _EPSILON) for member in self.members]
        log_odds = np.mean([np.log(p) - np.log1p(-p) for p in clipped], axis=0)
        return np.asarray(1 / (1 + np.exp(-log_odds)), dtype=np.float64)


def _logs(raw: Floats, missing: Floats) -> Floats:
    filled = np.where(np.isnan(raw), missing, raw)
    return np.asarray(np.log1p(np.maximum(filled, 0)), dtype=np.float64)
