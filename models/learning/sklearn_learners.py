"""Learners of scikit-learn, which `train --compare` measures beside LightGBM; their models are not stored."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from features.common.arrays import FloatArray, IntArray
from models.learning.learners import CATEGORICAL, WithKnobs

_MISSING = 1.1
"""Value of a missing time: longer than the longest one seen, which is 1 after scaling."""


@dataclasses.dataclass(frozen=True)
class SklearnScorer:
    """A fitted classifier of scikit-learn."""

    model: ClassifierMixin

    def score(self, x: pd.DataFrame) -> FloatArray:
        """Probabilities before calibration."""
        with threadpool_limits(1):  # horizons are the parallel part
            return np.asarray(self.model.predict_proba(x)[:, 1], dtype=np.float64)


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

    def fit(self, x: pd.DataFrame, y: FloatArray) -> SklearnScorer:
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
        # Binning takes no column without a value.
        empty = dict.fromkeys((name for name in x.columns if x[name].isna().all()), np.float32(0))
        with threadpool_limits(1):
            return SklearnScorer(model.fit(x.assign(**empty) if empty else x, y))


@dataclasses.dataclass(frozen=True)
class RandomForest(WithKnobs):
    """A random forest, fitted on a random sample of at most `max_rows` rows, because it is slow."""

    trees: int = 60
    min_rows: int = 20
    column_share: float = 0.3
    max_rows: int = 100_000
    seed: int = 1
    name: str = "forest"

    def fit(self, x: pd.DataFrame, y: FloatArray) -> SklearnScorer:
        """Fit by Gini impurity, on a sample with the class shares of `y`."""
        keep = _sampled_rows(y, self.max_rows, self.seed)
        model = RandomForestClassifier(
            n_estimators=self.trees,
            min_samples_leaf=self.min_rows,
            max_features=self.column_share,
            n_jobs=1,
            random_state=self.seed,
        )
        return SklearnScorer(model.fit(x.iloc[keep], y[keep]))


@dataclasses.dataclass(frozen=True)
class Logistic(WithKnobs):
    """Logistic regression on standardised inverse hyperbolic sines of the numbers, and on one-hot words.

    `c`: inverse strength of the L2 penalty.
    """

    c: float = 0.01
    name: str = "logistic"

    def fit(self, x: pd.DataFrame, y: FloatArray) -> SklearnScorer:
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
            return SklearnScorer(model.fit(x, y))


def _sampled_rows(y: FloatArray, n_rows: int, seed: int) -> IntArray:
    """Sorted indices of at most about `n_rows` rows, the same share of each class."""
    if len(y) <= n_rows:
        return np.arange(len(y), dtype=np.int64)
    rng = np.random.default_rng(seed)
    parts = [np.flatnonzero(y == label) for label in (0.0, 1.0)]
    rows = [rng.choice(part, max(1, round(len(part) * n_rows / len(y))), replace=False) for part in parts]
    return np.sort(np.concatenate(rows))
