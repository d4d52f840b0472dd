"""Mixes of several forecasts of reads, with weights fitted by absolute error."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from features.common.arrays import FloatArray, IntArray

_OF_TOTAL = 0.5
_SMOOTH = 0.05


def fit_weights(forecasts: FloatArray, reads: FloatArray, unit: IntArray) -> FloatArray:
    """The weight of each forecast (column) in the mix with the least absolute error.

    Weights are at least 0 and sum to at most 1. A row is a dataset at a `unit`; `reads` followed. A unit's
    error is Σ |mix - reads| plus half of |Σ mix - Σ reads|. It is divided by the unit's mean total forecast
    where that is above the median of all units, so that a few units with very many reads do not decide.
    """
    place = np.unique(unit, return_inverse=True)[1]
    totals = np.column_stack([np.bincount(place, column) for column in forecasts.T])
    size = totals.mean(axis=1)
    if not size.any():
        return np.zeros(forecasts.shape[1])
    of_unit = 1 / np.maximum(size, np.median(size[size > 0]))
    some = forecasts.any(axis=1)
    of_row, of_total = of_unit[place[some]], _OF_TOTAL * of_unit
    return _least_absolute(
        np.vstack([forecasts[some] * of_row[:, None], totals * of_total[:, None]]),
        np.concatenate([reads[some] * of_row, np.bincount(place, reads) * of_total]),
    )


def _least_absolute(columns: FloatArray, wanted: FloatArray) -> FloatArray:
    """Weights with the least Σ |columns · weights - wanted|, smoothed so that it has a slope everywhere."""
    scale = float(columns.sum(axis=0).mean())
    columns, wanted = columns / scale, wanted / scale
    smooth = _SMOOTH * float(columns.mean())

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        off = columns @ weights - wanted
        size = np.sqrt(off * off + smooth * smooth)
        return float(size.sum()), columns.T @ (off / size)

    n = columns.shape[1]
    at_most_one = {"type": "ineq", "fun": lambda w: 1 - w.sum(), "jac": lambda w: -np.ones(n)}
    found = minimize(
        loss, np.full(n, 1 / n), jac=True, method="SLSQP", bounds=[(0, 1)] * n, constraints=[at_most_one]
    )
    return np.clip(np.asarray(found.x, np.float64), 0, 1)
