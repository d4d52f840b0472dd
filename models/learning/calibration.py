"""Calibration: maps from scores to probabilities and to expected reads, as lists of knots."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from features.common.arrays import FloatArray, IntArray
from models.evaluation.metrics import log_loss

Fit = Callable[[FloatArray, FloatArray], "Knots"]
_EPSILON = 1e-6
_GRID = np.concatenate([[_EPSILON], np.linspace(0.005, 0.995, 199), [1 - _EPSILON]])
_MIN_ROWS = 50
_CLEARLY = 0.98
"""One map is clearly better than another if the ratio of their log losses is at most this."""
_FAR = 40.0
"""Log-odds beyond those of any float between 0 and 1."""
_ODDS_DECIMALS = 2
"""Rows of equal rounded log-odds are fitted as one: thousands of rows instead of all."""
_N_BINS = 10
_WINSOR = 0.99


@dataclasses.dataclass(frozen=True)
class Knots:
    """A piecewise linear map: `y` at increasing `x`, constant outside. `kind`: how it was fitted."""

    kind: str
    x: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, values: FloatArray) -> FloatArray:
        """The mapped values; NaN stays NaN."""
        return np.asarray(np.interp(values, self.x, self.y), dtype=np.float64)


IDENTITY = Knots("identity", (0.0, 1.0), (0.0, 1.0))


def isotonic(probabilities: FloatArray, labels: FloatArray) -> Knots:
    """The best monotone map of `probabilities` to `labels`, at least half a row away from 0 and 1."""
    fitted = IsotonicRegression(out_of_bounds="clip").fit(probabilities, labels)
    margin = 0.5 / (len(labels) + 1)
    ys = np.clip(fitted.y_thresholds_, margin, 1 - margin)
    return Knots("isotonic", _floats(fitted.X_thresholds_), _floats(ys))


def platt(probabilities: FloatArray, labels: FloatArray) -> Knots:
    """A logistic map of the log-odds of `probabilities` (Platt), on a grid; identity if it would decrease."""
    odds, place = np.unique(np.round(_logit(probabilities), _ODDS_DECIMALS), return_inverse=True)
    n_read = np.bincount(place, labels)
    weights = np.concatenate([n_read, np.bincount(place) - n_read])
    both = np.concatenate([odds, odds])[:, None]
    model = LogisticRegression(C=1e4).fit(both, np.repeat([1.0, 0.0], odds.size), weights)
    slope, intercept = float(model.coef_[0, 0]), float(model.intercept_[0])
    if slope <= 0:
        return IDENTITY
    ys = expit(slope * _logit(_GRID) + intercept)
    return Knots("platt", _floats(_GRID), _floats(ys))


def shift(probabilities: FloatArray, labels: FloatArray) -> Knots:
    """A constant shift of the log-odds that makes the mean probability that of `labels`, on a grid.

    For scores that are right but for the base rate. Identity with one class.
    """
    odds, mean = _logit(probabilities), float(np.mean(labels))
    if not 0 < mean < 1:
        return IDENTITY
    by = brentq(lambda by: float(np.mean(expit(odds + by))) - mean, -_FAR, _FAR)
    return Knots("shift", _floats(_GRID), _floats(expit(_logit(_GRID) + by)))


def calibrate(probabilities: FloatArray, labels: FloatArray, as_of: IntArray) -> Knots:
    """Choose between a shift, Platt and isotonic maps, and fit the chosen one on all rows.

    Platt and isotonic maps are chosen only if, fitted on either half of the rows, they have clearly less log
    loss than the shift on the other half; smaller gains do not last until the next weeks. The halves are
    split in time by as_of (alternate rows if there is one as_of). Identity with few rows or one class.
    """
    early = as_of < np.median(as_of) if len(np.unique(as_of)) > 1 else np.arange(len(labels)) % 2 == 0
    if any(_is_too_little(part) for part in (labels[early], labels[~early])):
        return IDENTITY

    def losses(fit: Fit) -> FloatArray:
        halves = ((early, ~early), (~early, early))
        maps = ((fit(probabilities[a], labels[a]), b) for a, b in halves)
        return np.array([log_loss(labels[b], knots(probabilities[b])) for knots, b in maps])

    by = {fit: losses(fit) for fit in (shift, platt, isotonic)}
    lasting = [fit for fit in (platt, isotonic) if (by[fit] < _CLEARLY * by[shift]).all()]
    return min(lasting or [shift], key=lambda fit: by[fit].sum())(probabilities, labels)


def calibrate_score(scores: FloatArray, labels: FloatArray, as_of: IntArray) -> Knots:
    """As `calibrate`, for scores in [0, 1] that are no probabilities; few rows: Platt, or a shift."""
    found = calibrate(scores, labels, as_of)
    for fit in (platt, shift):
        if found == IDENTITY:
            found = fit(scores, labels)
    return found


def reads_if_any(probabilities: FloatArray, reads: FloatArray) -> Knots:
    """Mean reads of rows with at least one read, by probability; with it a chance gives an expected count.

    Rows with a read go into up to ten bins of equal size by probability, and the bin means are made monotone.
    Reads are capped at their 99th percentile, because they are heavy-tailed. Constant 1 without such rows.
    """
    some = reads > 0
    p, n = probabilities[some], reads[some]
    if not len(n):
        return Knots("bins", (0.0, 1.0), (1.0, 1.0))
    n = np.minimum(n, np.quantile(n, _WINSOR))
    order = np.argsort(p, kind="stable")
    parts = np.array_split(order, min(_N_BINS, max(1, math.ceil(len(n) / _MIN_ROWS))))
    xs = np.array([p[part].mean() for part in parts])
    means = np.array([n[part].mean() for part in parts])
    places = np.arange(len(parts))
    rising = IsotonicRegression().fit(places, means, [len(q) for q in parts]).predict(places)
    distinct = np.concatenate([[True], np.diff(xs) > 0])
    return Knots("bins", _floats(xs[distinct]), _floats(np.maximum(rising[distinct], 1.0)))


def _is_too_little(labels: FloatArray) -> bool:
    return len(labels) < _MIN_ROWS or not 0 < labels.sum() < len(labels)


def _logit(p: FloatArray) -> FloatArray:
    p = np.clip(p, _EPSILON, 1 - _EPSILON)
    return np.asarray(np.log(p) - np.log1p(-p), dtype=np.float64)


def _floats(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
