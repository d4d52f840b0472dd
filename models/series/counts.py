"""Expected reads of a dataset within a horizon: the median of three forecasts, one of them a fitted mix."""

from __future__ import annotations

import dataclasses

import lightgbm as lgb
import numpy as np
import pandas as pd
from scipy.optimize import minimize

from features.common.arrays import Float32Array, FloatArray, IntArray
from models.series.features import Past, Rows
from models.series.series import Series

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


def _least_absolute(columns: FloatArray, target: FloatArray) -> FloatArray:
    """Weights with the least Σ |columns · weights - wanted|, smoothed so that it has a slope everywhere."""
    scale = float(columns.sum(axis=0).mean())
    columns, target = columns / scale, target / scale
    smooth = _SMOOTH * float(columns.mean())

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        off = columns @ weights - target
        size = np.sqrt(off * off + smooth * smooth)
        return float(size.sum()), columns.T @ (off / size)

    n = columns.shape[1]
    at_most_one = {"type": "ineq", "fun": lambda w: 1 - w.sum(), "jac": lambda w: -np.ones(n)}
    solution = minimize(
        loss, np.full(n, 1 / n), jac=True, method="SLSQP", bounds=[(0, 1)] * n, constraints=[at_most_one]
    )
    return np.clip(np.asarray(solution.x, np.float64), 0, 1)


_WINDOWS = (1, 2, 4, 7, 13, 26, 52)
_SEASON = 7
_QUANTILE = 0.6
_MOST = 1.5
_MOST_RAISED = 1.2
_MIN_ROWS = 50
_MAX_ROWS = 60_000
_TREES = 100
_PARAMETERS: dict[str, object] = {
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


@dataclasses.dataclass(frozen=True)
class Rates:
    """Simple forecasts of rows, from each row's own past.

    `windows`: reads within the horizon at the rate of the last 1, 2, 4, 7, 13, 26 and 52 units, a column
    each; `season`: the reads of one season before.
    """

    windows: FloatArray
    season: FloatArray

    def forecasts(self) -> FloatArray:
        """What the simple mix is made of, a column each.

        The least, the second least and the median of the rates; those of 1, 7 and 26 units; the season.
        """
        ordered = np.sort(self.windows, axis=1)[:, [0, 1, len(_WINDOWS) // 2]]
        own = self.windows[:, [_WINDOWS.index(window) for window in (1, 7, 26)]]
        return np.column_stack([ordered, own, self.season])

    def mixed(self, weights: FloatArray) -> Mixed:
        """The simple mix with these weights, and each row's scale."""
        mix = self.forecasts() @ weights
        return Mixed(self, mix, np.maximum(mix, self.windows.mean(axis=1)))


@dataclasses.dataclass(frozen=True)
class Mixed:
    """The mix of simple forecasts. `scale`: the mix or the mean rate, whichever is more."""

    rates: Rates
    mix: FloatArray
    scale: FloatArray

    def shares(self) -> dict[str, Float32Array]:
        """Columns: each simple forecast over the scale, and the logarithm of the scale."""
        forecasts = np.column_stack([self.rates.windows, self.rates.season, self.mix])
        shares = forecasts / np.maximum(self.scale, 1e-9)[:, None]
        names = [*(f"share_{window}" for window in _WINDOWS), "share_season", "share_mix"]
        columns = {name: column.astype(np.float32) for name, column in zip(names, shares.T, strict=True)}
        return columns | {"scale": np.log1p(self.scale).astype(np.float32)}


def expected_reads(past: Past, rows: Rows, present: Rows, chance: FloatArray, n_units: int) -> FloatArray:
    """Reads of each row of `present` in the next `n_units`; `chance`: its probability of any.

    The median of three forecasts, so that none of them decides alone: a mix of simple forecasts with little
    absolute error in the last 400 units; and, learned from `rows`, the chance times the median reads if there
    are any, and a quantile of the reads over its own scale. A median is less than the mean where reads
    are rare, so it is scaled up to the total of the simple mix, by at most a fifth.
    """
    reads, (code, unit) = past.reads(rows, n_units), past.pairs(n_units)
    simple = rates_of(past.series, code, unit, n_units).forecasts()
    weights = fit_weights(simple, past.series.reads_within(code, unit, n_units), unit)
    then, now = (rates_of(past.series, at.code, at.unit, n_units).mixed(weights) for at in (rows, present))
    if_any = chance * reads_if_any(rows.x, reads, present.x)
    share = share_of_scale(rows, then, reads, present, now)
    middle = np.asarray(np.median([now.mix, if_any, share], axis=0), np.float64)
    total = float(middle.sum())
    return middle * np.clip(now.mix.sum() / total, 1.0, _MOST_RAISED) if total else middle


def rates_of(series: Series, code: IntArray, unit: IntArray, n_units: int) -> Rates:
    """Simple forecasts for `n_units` of (dataset, unit) pairs; nothing after a pair's unit is used."""

    def rate(window: int) -> FloatArray:
        n_past = np.minimum(window, unit - series.first + 1)
        return series.reads_within(code, unit - window, window) * (n_units / n_past)

    season = series.reads_within(code, unit - max(_SEASON, n_units), n_units)
    return Rates(np.column_stack([rate(window) for window in _WINDOWS]), season)


def reads_if_any(x: pd.DataFrame, reads: FloatArray, present: pd.DataFrame) -> FloatArray:
    """The median number of reads of each row of `present`, given that there is one; at least 1.

    Learned from the latest rows of `x` with reads, by the absolute error of ln(reads): reads span six orders
    of magnitude, so that a fit of the mean would follow a few datasets. A constant if such rows are few.
    """
    some = np.flatnonzero(reads > 0)[-_MAX_ROWS:]
    if len(some) < _MIN_ROWS:
        return np.full(len(present), float(np.median(reads[some])) if len(some) else 1.0)
    logs = _boosted(x.iloc[some], np.log(reads[some]), present, objective="l1")
    return np.maximum(np.exp(logs), 1.0)


def share_of_scale(rows: Rows, then: Mixed, reads: FloatArray, present: Rows, now: Mixed) -> FloatArray:
    """A quantile of the reads of `present`, predicted as a share, at most 1.5, of a dataset's scale.

    Learned from the latest rows with a scale by the quantile's loss; the simple mix if they are few. A unit's
    rows weigh as the roots of their scales, and each unit the same, so that a few large datasets do not
    decide.
    """
    some = np.flatnonzero(then.scale > 0)[-_MAX_ROWS:]
    if len(some) < _MIN_ROWS:
        return now.mix
    scale, place = then.scale[some], np.unique(rows.unit[some], return_inverse=True)[1]
    weight = np.sqrt(scale)
    weight /= np.bincount(place, weight)[place]
    x = rows.x.iloc[some].assign(**{name: column[some] for name, column in then.shares().items()})
    share = _boosted(
        x,
        np.minimum(reads[some] / scale, _MOST),
        present.x.assign(**now.shares()),
        weight / weight.mean(),
        objective="quantile",
        alpha=_QUANTILE,
    )
    return np.clip(share, 0, _MOST) * now.scale


def _boosted(
    x: pd.DataFrame,
    y: FloatArray,
    present: pd.DataFrame,
    weight: FloatArray | None = None,
    **objective: object,
) -> FloatArray:
    """What trees fitted to `y` predict for `present`."""
    least = min(200, max(5, len(y) // 50))
    data = lgb.Dataset(x, y, weight=weight, params={"verbosity": -1, "num_threads": 1})
    booster = lgb.train({**_PARAMETERS, **objective, "min_data_in_leaf": least}, data, _TREES)
    return np.asarray(booster.predict(present, num_threads=1), np.float64)
