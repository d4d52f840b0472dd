"""Learners: each turns a matrix and labels into a scorer that can be stored in its library's own format."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Protocol

import lightgbm as lgb
import numpy as np
import pandas as pd
import skops.io
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from features.arrays import FloatArray
from models.learning.forest import forest_of, probabilities
from replay.forest import Forest

CATEGORICAL = ("tier", "campaign")
_RISING = ("n_reads", "decayed_", "dataset_decayed_", "dataset_passes_")
_FALLING = ("recency_s", "dataset_recency_s")


class Scorer(Protocol):
    """Scores rows of a model matrix."""

    def score(self, x: pd.DataFrame) -> FloatArray:
        """One score per row; higher means likelier to be read."""
        ...


class Fitted(Scorer, Protocol):
    """A trained scorer of (uncalibrated) probabilities that can be stored."""

    @property
    def flavour(self) -> str:
        """The MLflow flavour of its format: lightgbm or sklearn."""
        ...

    def payload(self) -> bytes:
        """The model in its library's own format; `models.learning.stored` brings it back."""
        ...

    def importance(self) -> Mapping[str, float]:
        """Gain per column, summing to 1; empty where the library has none."""
        ...


class Learner(Protocol):
    """A learning algorithm with its settings; it keeps nothing between fits."""

    @property
    def name(self) -> str:
        """The name in reports."""
        ...

    def fit(self, x: pd.DataFrame, y: FloatArray) -> Scorer:
        """Fit to labels `y` (0 or 1). The same input gives the same model."""
        ...

    @property
    def knobs(self) -> Mapping[str, float]:
        """The settings, for the record."""
        ...


@dataclasses.dataclass(frozen=True)
class WithKnobs:
    """Base of learners whose settings are their fields."""

    @property
    def knobs(self) -> Mapping[str, float]:
        """All settings except the name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "name"}


@dataclasses.dataclass(frozen=True)
class LightGBM(WithKnobs):
    """Gradient-boosted trees of LightGBM.

    `monotone`: more reads, or a shorter time since the last one, never lower the score of a file.
    `extra_trees`: thresholds of splits are drawn at random.
    """

    trees: int = 80
    leaves: int = 31
    min_rows: int = 100
    rate: float = 0.06
    column_share: float = 0.5
    row_share: float = 0.7
    l2: float = 10.0
    monotone: bool = False
    extra_trees: bool = False
    seed: int = 1
    name: str = "lightgbm"

    def fit(self, x: pd.DataFrame, y: FloatArray) -> FittedLightGBM:
        """Fit by binary log loss, with one thread (see `models.parallel`)."""
        categorical = [name for name in CATEGORICAL if name in x.columns]
        quiet = {"verbosity": -1, "num_threads": 1}
        data = lgb.Dataset(x, y, categorical_feature=categorical, params=quiet)
        return FittedLightGBM(lgb.train(self._parameters(list(x.columns)), data, self.trees))

    def _parameters(self, columns: Sequence[str]) -> dict[str, object]:
        parameters: dict[str, object] = {
            "objective": "binary",
            "num_leaves": self.leaves,
            "min_data_in_leaf": self.min_rows,
            "learning_rate": self.rate,
            "feature_fraction": self.column_share,
            "bagging_fraction": self.row_share,
            "bagging_freq": 1,
            "lambda_l2": self.l2,
            "extra_trees": self.extra_trees,
            "seed": self.seed,
            "deterministic": True,
            "force_col_wise": True,  # faster than by rows, for the same trees
            "verbosity": -1,
            "num_threads": 1,
        }
        if self.monotone:
            parameters["monotone_constraints"] = [_direction(name) for name in columns]
        return parameters


@dataclasses.dataclass(frozen=True)
class FittedLightGBM:
    """A LightGBM booster, scored by a kernel."""

    booster: lgb.Booster

    @functools.cached_property
    def _forest(self) -> Forest:
        return forest_of(self.payload().decode(), self.booster.feature_name())

    @property
    def flavour(self) -> str:
        """lightgbm."""
        return "lightgbm"

    def score(self, x: pd.DataFrame) -> FloatArray:
        """Probabilities before calibration."""
        return probabilities(self._forest, x.to_numpy(dtype=np.float32))

    def payload(self) -> bytes:
        """LightGBM's text format, UTF-8."""
        return str(self.booster.model_to_string()).encode()

    def importance(self) -> Mapping[str, float]:
        """Share of the total gain by column."""
        gains = self.booster.feature_importance("gain")
        total = float(gains.sum()) or 1.0
        return {n: float(g) / total for n, g in zip(self.booster.feature_name(), gains, strict=True)}


@dataclasses.dataclass(frozen=True)
class HistBoosting(WithKnobs):
    """Histogram gradient boosting of scikit-learn."""

    trees: int = 150
    leaves: int = 31
    min_rows: int = 100
    rate: float = 0.05
    l2: float = 10.0
    seed: int = 1
    name: str = "hist_boosting"

    def fit(self, x: pd.DataFrame, y: FloatArray) -> FittedSklearn:
        """Fit by binary log loss, without early stopping."""
        model = HistGradientBoostingClassifier(
            max_iter=self.trees,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.min_rows,
            learning_rate=self.rate,
            l2_regularization=self.l2,
            categorical_features=[name for name in CATEGORICAL if name in x.columns] or None,
            early_stopping=False,
            random_state=self.seed,
        )
        with threadpool_limits(1):
            return FittedSklearn(model.fit(_without_empty(x), y))


@dataclasses.dataclass(frozen=True)
class FittedSklearn:
    """A fitted classifier of scikit-learn."""

    model: ClassifierMixin

    @property
    def flavour(self) -> str:
        """sklearn."""
        return "sklearn"

    def score(self, x: pd.DataFrame) -> FloatArray:
        """Probabilities before calibration."""
        with threadpool_limits(1):  # Spark's tasks are the parallel part
            return np.asarray(self.model.predict_proba(x)[:, 1], dtype=np.float64)

    def payload(self) -> bytes:
        """skops' format."""
        return bytes(skops.io.dumps(self.model))

    def importance(self) -> Mapping[str, float]:
        """Share of the impurity reduction by column, for a forest; empty for other models."""
        gains = getattr(self.model, "feature_importances_", None)
        if gains is None:
            return {}
        return dict(zip(self.model.feature_names_in_, (float(g) for g in gains), strict=True))


def _without_empty(x: pd.DataFrame) -> pd.DataFrame:
    """`x` with 0 in columns that have no value, which histogram boosting cannot bin."""
    empty = [name for name in x.columns if x[name].isna().all()]
    return x.assign(**dict.fromkeys(empty, np.float32(0))) if empty else x


def _direction(column: str) -> int:
    if column.startswith(_RISING):
        return 1
    return -1 if column in _FALLING else 0
