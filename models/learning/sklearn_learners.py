"""Learners of scikit-learn to compare with boosting: a random forest and logistic regression."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from features.arrays import FloatArray, IntArray
from models.learning.learners import CATEGORICAL, FittedSklearn, WithKnobs

_MISSING = 1.1
"""Value of a missing time: longer than the longest one seen, which is 1 after scaling."""


@dataclasses.dataclass(frozen=True)
class Forest(WithKnobs):
    """A random forest, fitted on a random sample of at most `max_rows` rows, because it is slow."""

    trees: int = 60
    min_rows: int = 20
    column_share: float = 0.3
    max_rows: int = 100_000
    seed: int = 1
    name: str = "forest"

    def fit(self, x: pd.DataFrame, y: FloatArray) -> FittedSklearn:
        """Fit by Gini impurity, on a sample with the class shares of `y`."""
        keep = _sampled_rows(y, self.max_rows, self.seed)
        model = RandomForestClassifier(
            n_estimators=self.trees,
            min_samples_leaf=self.min_rows,
            max_features=self.column_share,
            n_jobs=1,
            random_state=self.seed,
        )
        return FittedSklearn(model.fit(x.iloc[keep], y[keep]))


@dataclasses.dataclass(frozen=True)
class Logistic(WithKnobs):
    """Logistic regression on standardised inverse hyperbolic sines of the numbers, and on one-hot words.

    `c`: inverse strength of the L2 penalty.
    """

    c: float = 0.01
    name: str = "logistic"

    def fit(self, x: pd.DataFrame, y: FloatArray) -> FittedSklearn:
        """Fit by L2-penalised log loss."""
        known = [str(name) for name in x.columns if x[name].notna().any()]
        numbers = make_pipeline(
            FunctionTransformer(np.arcsinh),  # like a logarithm, for 0 and negative numbers too
            MaxAbsScaler(),
            SimpleImputer(strategy="constant", fill_value=_MISSING),
            StandardScaler(),
        )
        words = OneHotEncoder(handle_unknown="ignore")
        columns = ColumnTransformer(
            [
                ("numbers", numbers, [name for name in known if name not in CATEGORICAL]),
                ("words", words, [name for name in known if name in CATEGORICAL]),
            ]
        )
        model = make_pipeline(columns, LogisticRegression(C=self.c, max_iter=300))
        with threadpool_limits(1), warnings.catch_warnings():  # one thread: the same model again
            warnings.simplefilter("ignore", ConvergenceWarning)
            return FittedSklearn(model.fit(x, y))


def _sampled_rows(y: FloatArray, n_rows: int, seed: int) -> IntArray:
    """Sorted indices of at most about `n_rows` rows, the same share of each class."""
    if len(y) <= n_rows:
        return np.arange(len(y), dtype=np.int64)
    rng = np.random.default_rng(seed)
    parts = [np.flatnonzero(y == label) for label in (0.0, 1.0)]
    kept = [rng.choice(part, max(1, round(len(part) * n_rows / len(y))), replace=False) for part in parts]
    return np.sort(np.concatenate(kept))
