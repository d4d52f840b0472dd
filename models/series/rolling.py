"""Rolling evaluation: forecasts made at past units of a series, compared with the reads that followed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from features.common.arrays import FloatArray, IntArray
from models.evaluation.metrics import quality, ranking_quality
from models.series.forecast import HorizonForecast, forecast
from models.series.series import Series

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
    """Figures of one forecast, made at the end of unit `cut`, when `reads` followed in the horizon.

    `log_loss`: of the probabilities.
    """

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
    made, recency = quality(labels, probability), ranking_quality(labels, last)
    return CutQuality(
        cut=past.now,
        horizon=n_units,
        reads=float(reads.sum()),
        auc=made.auc,
        recency_auc=recency.auc,
        average_precision=made.average_precision,
        recency_average_precision=recency.average_precision,
        log_loss=made.log_loss,
        calibration_error=made.calibration_error,
        mean_probability=float(probability.mean()),
        positive_share=made.positive_share,
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
