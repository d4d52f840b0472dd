"""Model of the number of reads of a dataset within a horizon, given that it is read."""

from __future__ import annotations

import dataclasses

import lightgbm as lgb
import numpy as np
import pandas as pd

from features.arrays import FloatArray

_MIN_ROWS = 50
_MAX_ROWS = 30_000
_PARAMETERS: dict[str, object] = {
    "objective": "l1",
    "num_leaves": 6,
    "learning_rate": 0.05,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 5.0,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}
_TREES = 150


@dataclasses.dataclass(frozen=True)
class CountModel:
    """A model of reads: `booster` predicts ln(reads); without one, `constant` is predicted."""

    booster: lgb.Booster | None
    constant: float

    def predict(self, x: pd.DataFrame) -> FloatArray:
        """The median number of reads of each row, given that there is one; at least 1."""
        if self.booster is None:
            return np.full(len(x), self.constant)
        return np.maximum(np.exp(np.asarray(self.booster.predict(x, num_threads=1), np.float64)), 1.0)


def fit_counts(x: pd.DataFrame, reads: FloatArray) -> CountModel:
    """Fit the latest 30 000 rows with reads, by the absolute error of ln(reads).

    Reads span six orders of magnitude, so that a fit of the mean would follow a few datasets.
    """
    some = np.flatnonzero(reads > 0)[-_MAX_ROWS:]
    if len(some) < _MIN_ROWS:
        return CountModel(None, float(np.median(reads[some])) if len(some) else 1.0)
    parameters = {**_PARAMETERS, "min_data_in_leaf": min(100, max(5, len(some) // 50))}
    data = lgb.Dataset(x.iloc[some], np.log(reads[some]), params={"verbosity": -1, "num_threads": 1})
    return CountModel(lgb.train(parameters, data, _TREES), 1.0)
