"""Calibration: maps from scores to probabilities and expected reads, and corrections by hour of the week.

SciPy and scikit-learn are loaded where they are used: a steward's host, which reads models, has neither.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

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
WEEK_HOURS = 168


def isotonic(probabilities: FloatArray, labels: FloatArray) -> Knots:
    """The best monotone map of `probabilities` to `labels`, at least half a row away from 0 and 1."""
    from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415

    fitted = IsotonicRegression(out_of_bounds="clip").fit(probabilities, labels)
    margin = 0.5 / (len(labels) + 1)
    ys = np.clip(fitted.y_thresholds_, margin, 1 - margin)
    return Knots("isotonic", _floats(fitted.X_thresholds_), _floats(ys))


def platt(probabilities: FloatArray, labels: FloatArray) -> Knots:
    """A logistic map of the log-odds of `probabilities` (Platt), on a grid; identity if it would decrease."""
    from scipy.special import expit  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

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
    from scipy.optimize import brentq  # noqa: PLC0415
    from scipy.special import expit  # noqa: PLC0415

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


def weekly(probabilities: FloatArray, labels: FloatArray, as_of: IntArray) -> tuple[float, ...]:
    """Log-odds to add per hour of the week (`hour_of_week` of the as_of), from calibrated `probabilities`.

    At night and on weekends all files are read less, which a model of few weeks does not know. Each hour has
    the mean of its as_ofs' errors, shrunk as by one more as_of without an error. Empty unless this lessens
    the log loss of weeks that it was not fitted on, each in turn.
    """
    week, corrected = as_of // (WEEK_HOURS * 3600), np.empty_like(probabilities)
    weeks = np.unique(week)
    if len(weeks) < 2 or _is_too_little(labels):
        return ()
    for tested in (week == number for number in weeks):
        others = _errors(probabilities[~tested], labels[~tested], as_of[~tested])
        corrected[tested] = by_hour(probabilities[tested], others, hour_of_week(as_of[tested]))
    is_better = log_loss(labels, corrected) < log_loss(labels, probabilities)
    return _errors(probabilities, labels, as_of) if is_better else ()


def _errors(probabilities: FloatArray, labels: FloatArray, as_of: IntArray) -> tuple[float, ...]:
    moments, place = np.unique(as_of, return_inverse=True)
    missing = np.bincount(place, labels - probabilities)
    error = missing / np.maximum(np.bincount(place, probabilities * (1 - probabilities)), 1.0)
    hour = hour_of_week(moments)
    total, n = (np.bincount(hour, weights, WEEK_HOURS) for weights in (error, None))
    return _floats(np.clip(total / (n + 1), -1.0, 1.0))


def hour_of_week(as_of: IntArray) -> IntArray:
    """0 to 167 per as_of, from Thursday 0:00 UTC as 1970 began; 24 x `weekday` + `hour` of the features."""
    return as_of // 3600 % WEEK_HOURS


def by_hour(probabilities: FloatArray, week: tuple[float, ...], hour: IntArray) -> FloatArray:
    """`probabilities` corrected by `week` of `weekly`; `hour`: of the week, per row."""
    from scipy.special import expit  # noqa: PLC0415

    return np.asarray(expit(_logit(probabilities) + np.array(week)[hour]), np.float64)


def calibrate_score(scores: FloatArray, labels: FloatArray, as_of: IntArray) -> Knots:
    """As `calibrate`, for scores in [0, 1] that are no probabilities; few rows: Platt, or a shift."""
    knots = calibrate(scores, labels, as_of)
    for fit in (platt, shift):
        if knots == IDENTITY:
            knots = fit(scores, labels)
    return knots


def reads_if_any(probabilities: FloatArray, reads: FloatArray) -> Knots:
    """Mean reads of rows with at least one read, by probability; with it a chance gives an expected count.

    Rows with a read go into up to ten bins of equal size by probability, and the bin means are made monotone.
    Reads are capped at their 99th percentile, because they are heavy-tailed. Constant 1 without such rows.
    """
    from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415

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
