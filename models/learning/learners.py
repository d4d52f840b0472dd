"""Learners turn a matrix and labels into a scorer; LightGBM, whose models are stored and serve."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Protocol

import lightgbm as lgb
import numpy as np
import pandas as pd

from features.common.arrays import FloatArray, IntArray
from models.learning.forest import forest_of, probabilities, trees_of
from replay.trees.forest import Forest

CATEGORICAL = ("tier", "campaign")
_RISING = ("n_reads", "decayed_", "dataset_decayed_", "dataset_passes_")
_FALLING = ("recency_s", "dataset_recency_s")


class Scorer(Protocol):
    """Scores rows of a model matrix."""

    def score(self, x: pd.DataFrame) -> FloatArray:
        """One score per row; higher means likelier to be read."""
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
    `extra_trees`: thresholds of splits are drawn at random. `best_trees`: so many of the trees, the last
    ones, have the best thresholds nevertheless.
    """

    trees: int = 80
    best_trees: int = 0
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

    def fit(self, x: pd.DataFrame, y: FloatArray) -> Trees:
        """Fit by binary log loss, with one thread (see `models.parallel`)."""
        return self._trees(self.binned(x).set_label(y))

    def binned(self, x: pd.DataFrame) -> lgb.Dataset:
        """Rows for several fits: to find the bins takes as long as a fit of a few trees."""
        categorical = [name for name in CATEGORICAL if name in x.columns]
        parameters = self._parameters(list(x.columns))
        return lgb.Dataset(x, categorical_feature=categorical, params=parameters).construct()

    def fit_some(self, x: lgb.Dataset, rows: IntArray, y: FloatArray) -> Trees:
        """Fit as `fit` does, to the rows of `binned` at ascending places `rows`, whose labels are `y`."""
        return self._trees(x.subset(rows.tolist()).construct().set_label(y))

    def _trees(self, data: lgb.Dataset) -> Trees:
        columns, n_drawn = data.get_feature_name(), self.trees - self.best_trees
        is_drawn = lgb.reset_parameter(extra_trees=lambda tree: self.extra_trees and tree < n_drawn)
        booster = lgb.train(self._parameters(columns), data, self.trees, callbacks=[is_drawn])
        return Trees.of(str(booster.model_to_string()), columns)

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
class Trees:
    """A LightGBM model as its text, scored by a kernel. `columns`: of the rows that it scores."""

    text: str
    columns: tuple[str, ...]

    @staticmethod
    def of(text: str, columns: Sequence[str]) -> Trees:
        """The model of `text` without what follows its trees. Raises ModelError if it is cut short."""
        return Trees(trees_of(text), tuple(columns))

    @functools.cached_property
    def _forest(self) -> Forest:
        return forest_of(self.text, self.columns)

    def score(self, x: pd.DataFrame) -> FloatArray:
        """Probabilities before calibration."""
        return probabilities(self._forest, x.to_numpy(dtype=np.float32))

    def importance(self) -> Mapping[str, float]:
        """Share of the total gain by column."""
        gains = lgb.Booster(model_str=self.text).feature_importance("gain")
        total = float(gains.sum()) or 1.0
        return {name: float(gain) / total for name, gain in zip(self.columns, gains, strict=True)}


def _direction(column: str) -> int:
    if column.startswith(_RISING):
        return 1
    return -1 if column in _FALLING else 0
