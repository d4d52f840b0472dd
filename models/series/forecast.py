"""Forecasts of a popularity series: one ranking of datasets, calibrated for each horizon."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from features.common.arrays import FloatArray
from models.learning.calibration import platt
from models.series.counts import expected_reads
from models.series.features import Past, Rows
from models.series.ranking import Ranking, fit_ranking
from models.series.series import Series


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
        made = None if scorer is None else _learned(past, present, scorer, n_units)
        if made is None:
            made = _extended(results[-1], n_units) if results else rate_forecast(series, n_units)
        results.append(_at_least_shorter(results[-1] if results else None, made))
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
