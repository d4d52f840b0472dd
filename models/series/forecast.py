"""Forecasts of a popularity series: one ranking of datasets, calibrated for each horizon; and their quality.

The ranking is by boosted trees, and a logistic regression that steadies them. The quality is that of
forecasts made at past units of a series, compared with the reads that followed.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from features.common.arrays import BoolArray, FloatArray, IntArray
from models.evaluation.metrics import quality, ranking_quality
from models.learning.calibration import platt
from models.learning.learners import LightGBM, Scorer
from models.learning.sklearn_learners import Logistic
from models.series.counts import expected_reads
from models.series.features import Past, Rows
from models.series.series import Series

_MIN_ROWS = 50
_LAST_SHARE = 0.25
_SURELY = 1.0
_FAR = 1e-9


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Scores rows by `trees`; with a `regression`, by the mean of both log-odds. Scores are from 0 to 1."""

    trees: Scorer
    regression: Scorer | None

    @property
    def name(self) -> str:
        """The learners, for the record."""
        return "lightgbm" if self.regression is None else "lightgbm, logistic"

    def score(self, x: pd.DataFrame) -> FloatArray:
        """One score per row; higher means likelier to be read in the next unit."""
        trees = self.trees.score(x)
        return trees if self.regression is None else _mean(trees, self.regression.score(_decayed(x)))


def fit_ranking(past: Past) -> Ranking | None:
    """The chance of a read in the next unit, learned from the last 52 units.

    Trees follow single datasets where a few of thousands are read; a regression on the decayed counts has too
    few parameters for that, and the mean ranks better than either. Where a series has few datasets the trees
    alone may be better: the regression is left out if both, fitted on the earlier units, had significantly
    less average precision together than the trees in the last quarter of them. None if there are fewer than
    50 rows, or only one class.
    """
    rows = past.matured(1)
    if rows is None:
        return None
    labels = past.reads(rows, 1) > 0
    if not _is_enough(labels):
        return None
    trees = _fit_trees(rows.x, labels)
    return Ranking(trees, None if _trees_are_better(rows, labels) else _fit_regression(rows.x, labels))


def _trees_are_better(rows: Rows, labels: BoolArray) -> bool:
    """Whether trees alone, fitted on the earlier units, rank significantly better in the last quarter."""
    units = np.unique(rows.unit)
    last = units[-max(1, round(len(units) * _LAST_SHARE)) :]
    before = rows.unit < last[0]  # the label of a unit is known one unit later
    if not _is_enough(labels[before]):
        return False
    then, later = rows.x[before], rows.x[~before]
    alone = _fit_trees(then, labels[before]).score(later)
    both = _mean(alone, _fit_regression(then, labels[before]).score(_decayed(later)))
    of_row, read = rows.unit[~before], labels[~before]
    of_units = [
        ranking_quality(read[here], alone[here]).average_precision
        - ranking_quality(read[here], both[here]).average_precision
        for here in (of_row == unit for unit in last)
        if 0 < read[here].sum() < here.sum()
    ]
    if len(of_units) < 2:
        return False
    return bool(np.mean(of_units) > _SURELY * np.std(of_units, ddof=1) / len(of_units) ** 0.5)


def _is_enough(labels: BoolArray) -> bool:
    return len(labels) >= _MIN_ROWS and bool(0 < labels.sum() < len(labels))


def _fit_trees(x: pd.DataFrame, labels: BoolArray) -> Scorer:
    """Few small trees, because popularity changes within a year, with thresholds drawn at random."""
    min_rows = min(300, max(5, len(labels) // 100))
    learner = LightGBM(trees=150, leaves=6, min_rows=min_rows, rate=0.05, extra_trees=True)
    return learner.fit(x, labels.astype(np.float64))


def _fit_regression(x: pd.DataFrame, labels: BoolArray) -> Scorer:
    return Logistic(c=0.001).fit(_decayed(x), labels.astype(np.float64))


def _decayed(x: pd.DataFrame) -> pd.DataFrame:
    """Recency, age and the decayed counts, of the dataset and its neighbours; 0 without neighbours."""
    return x[[name for name in x.columns if name in ("recency", "age") or "decayed_" in name]].fillna(0)


def _mean(a: FloatArray, b: FloatArray) -> FloatArray:
    odds = (logit(np.clip(scores, _FAR, 1 - _FAR)) for scores in (a, b))
    return np.asarray(expit(sum(odds) / 2), np.float64)


@dataclasses.dataclass(frozen=True)
class HorizonForecast:
    """One horizon's forecast, in the order of the series' names. `model`: the method used."""

    n_units: int
    probability: FloatArray
    expected: FloatArray
    model: str


def forecast(series: Series, horizons: Sequence[int]) -> list[HorizonForecast]:
    """A forecast per horizon (in units, rising), for all datasets of the series in order.

    Datasets are ranked by the chance of a read in the **next unit**, for all horizons: the labels of long
    horizons are old and rank worse. Each horizon maps this score to a probability, fitted on the last 52
    units with matured labels. Expected reads are made for a small absolute error, and are less than a mean
    (`models.series.counts`).

    A horizon without matured labels extends the next shorter one at a constant rate; without a shorter one,
    `rate_forecast` is used. A longer horizon never has a lower probability or fewer expected reads than a
    shorter one. Expected reads are never below the probability.
    """
    past = Past(series)
    scorer = fit_ranking(past)
    present = past.present()
    results: list[HorizonForecast] = []
    for n_units in horizons:
        result = None if scorer is None else _learned(past, present, scorer, n_units)
        if result is None:
            result = _extended(results[-1], n_units) if results else rate_forecast(series, n_units)
        results.append(_at_least_shorter(results[-1] if results else None, result))
    return results


def rate_forecast(series: Series, n_units: int) -> HorizonForecast:
    """A forecast without training: each dataset's share of units with reads, decayed since its last read.

    Per unit the rate is (active + ½) / (units since its first record + 1), times 2^(-units since the last
    read / units since its first record); the chance within n units is 1 - (1 - rate)^n.
    """
    n = len(series.names)
    age = (series.now - series.born + 1).astype(np.float64)
    active = np.bincount(series.code, minlength=n)
    last = series.born - 1
    np.maximum.at(last, series.code, series.unit)
    rate = (active + 0.5) / (age + 1) * 2.0 ** (-(series.now - last) / age)
    mean = np.bincount(series.code, series.reads, minlength=n) / np.maximum(active, 1)
    probability = 1 - (1 - rate) ** n_units
    return HorizonForecast(
        n_units, probability, rate * n_units * np.maximum(mean, 1), "rate: too short a past"
    )


def _learned(past: Past, present: Rows, scorer: Ranking, n_units: int) -> HorizonForecast | None:
    """The forecast of a horizon by `scorer`; None if too few labels have matured."""
    rows = past.matured(n_units)
    if rows is None:
        return None
    labels = (past.reads(rows, n_units) > 0).astype(np.float64)
    if not 0 < labels.sum() < len(labels):
        return None
    # Platt's curve is strictly rising: it keeps the ranking and makes no ties.
    probability = platt(scorer.score(rows.x), labels)(scorer.score(present.x))
    expected = expected_reads(past, rows, present, probability, n_units)
    return HorizonForecast(n_units, probability, expected, scorer.name)


def _extended(shorter: HorizonForecast, n_units: int) -> HorizonForecast:
    stretch = n_units / shorter.n_units
    return HorizonForecast(
        n_units,
        1 - (1 - shorter.probability) ** stretch,
        shorter.expected * stretch,
        f"extended from {shorter.n_units}: too few matured labels",
    )


def _at_least_shorter(shorter: HorizonForecast | None, now: HorizonForecast) -> HorizonForecast:
    probability = np.clip(now.probability, 0, 1)
    expected = np.maximum(now.expected, probability)
    if shorter is not None:
        probability = np.maximum(probability, shorter.probability)
        expected = np.maximum(np.maximum(expected, shorter.expected), probability)
    return dataclasses.replace(now, probability=probability, expected=expected)


_SEASON = 7


@dataclasses.dataclass(frozen=True)
class ForecastFigures:
    """Figures of forecasts for the next `horizon` units, over the datasets known when a forecast was made.

    `auc`, `average_precision`, `calibration_error`: of the probabilities; `recency_…`: of a
    ranking by the last read. Of counts: `absolute_error` is Σ |expected - reads| / Σ reads, which is 1 for a
    forecast of nothing; `count_error` is |Σ expected - Σ reads| / Σ reads; over datasets with reads,
    `median_count_error` is the median and `relative_error` the mean of |expected - reads| / reads. `last_…`
    repeats the last unit's reads, `season_…` those of the `horizon` units before (at least 7), `recent_…`
    the rate of the last 7 units.
    """

    horizon: int
    auc: float
    recency_auc: float
    average_precision: float
    recency_average_precision: float
    calibration_error: float
    mean_probability: float
    positive_share: float
    absolute_error: float
    last_absolute_error: float
    season_absolute_error: float
    recent_absolute_error: float
    count_error: float
    last_count_error: float
    season_count_error: float
    recent_count_error: float
    median_count_error: float
    last_median_count_error: float
    season_median_count_error: float
    recent_median_count_error: float
    relative_error: float
    last_relative_error: float
    season_relative_error: float
    recent_relative_error: float


@dataclasses.dataclass(frozen=True)
class CutQuality(ForecastFigures):
    """Figures of a forecast made at the end of unit `cut`, when `reads` followed; `log_loss`: of chances."""

    cut: int
    log_loss: float
    reads: float


def rolling_quality(series: Series, horizons: Sequence[int], cuts: Sequence[int]) -> Iterator[CutQuality]:
    """The quality of a forecast made at each of `cuts` (units), for horizons that end by `series.now`.

    Cuts before the first record are left out, and horizons in which no dataset or every dataset is read.
    """
    for cut in cuts:
        matured = [n_units for n_units in sorted(set(horizons)) if cut + n_units <= series.now]
        if cut < series.first or not matured:
            continue
        past = series.until(cut)
        known = np.flatnonzero(series.born <= cut)
        for result in forecast(past, matured):
            reads = _reads(series, known, cut, result.n_units)
            if 0 < (reads > 0).sum() < len(reads):
                yield _judged(past, result, reads)


def _judged(past: Series, result: HorizonForecast, reads: FloatArray) -> CutQuality:
    n_units, probability = result.n_units, result.probability
    labels = (reads > 0).astype(np.float64)
    last = np.full(len(past.names), -1)
    np.maximum.at(last, past.code, past.unit)
    learned, recency = quality(labels, probability), ranking_quality(labels, last)
    return CutQuality(
        cut=past.now,
        horizon=n_units,
        reads=float(reads.sum()),
        auc=learned.auc,
        recency_auc=recency.auc,
        average_precision=learned.average_precision,
        recency_average_precision=recency.average_precision,
        log_loss=learned.log_loss,
        calibration_error=learned.calibration_error,
        mean_probability=float(probability.mean()),
        positive_share=learned.positive_share,
        **_errors_of_counts(past, result, reads),
    )


def _errors_of_counts(past: Series, result: HorizonForecast, reads: FloatArray) -> dict[str, float]:
    """The errors of the expected reads, and of three simple forecasts."""
    everyone, n_units = np.arange(len(past.names)), result.n_units
    forecasts = {
        "": result.expected,
        "last_": _reads(past, everyone, past.now - 1, 1) * n_units,
        "season_": _reads(past, everyone, past.now - max(_SEASON, n_units), n_units),
        "recent_": _reads(past, everyone, past.now - _SEASON, _SEASON) * n_units / _SEASON,
    }
    return {
        f"{name}{error}": value
        for name, counts in forecasts.items()
        for error, value in _count_errors(reads, counts).items()
    }


def _reads(series: Series, code: IntArray, unit: int, n_units: int) -> FloatArray:
    return series.reads_within(code, np.full(len(code), unit), n_units)


def _count_errors(reads: FloatArray, counts: FloatArray) -> dict[str, float]:
    some, total, off = reads > 0, float(reads.sum()), np.abs(counts - reads)
    relative = off[some] / reads[some]
    return {
        "absolute_error": float(off.sum()) / total,
        "count_error": abs(float(counts.sum()) - total) / total,
        "median_count_error": float(np.median(relative)),
        "relative_error": float(relative.mean()),
    }
