"""Forecasts of a popularity series: one model per horizon, trained on its own past, honest about time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from features.spec import FeatureSpec
from models.fit import CalibratedModel, fit_best
from models.frame import Sample, informative, learn_vocabulary, model_matrix
from models.learners import Learner, LightGBM
from models.linear import Blend, Linear
from models.series import Series

Floats = npt.NDArray[np.float64]
_WINDOWS = (1, 2, 4, 8, 13, 26, 52)
_HALF_LIVES = (1, 4, 13)
_MIN_HISTORY = 4
_MAX_AS_OFS = 104
_MIN_ROWS = 50


@dataclasses.dataclass(frozen=True)
class HorizonForecast:
    """One horizon: entries in the order of the series' names. `model` says what made them."""

    n_units: int
    probability: Floats
    expected: Floats
    model: str


@dataclasses.dataclass(frozen=True)
class _Learned:
    model: CalibratedModel
    vocabulary: dict[str, list[str]]
    columns: list[str]


def series_spec(unit_s: int, horizons: Sequence[int]) -> FeatureSpec:
    """The features of a series: a cycle is a unit, windows 1 to 52 units, half-lives 1, 4 and 13 units."""
    return FeatureSpec(
        cycle_s=unit_s,
        windows_s=tuple(unit_s * w for w in _WINDOWS),
        half_lives_s=tuple(unit_s * h for h in _HALF_LIVES),
        horizons_s=tuple(unit_s * h for h in horizons),
        n_gaps=4,
        candidate_s=unit_s * max(_WINDOWS),
        active_dataset_s=unit_s,
    )


def training_units(series: Series, horizons: Sequence[int]) -> list[int]:
    """Units to train at: those with a matured label and some history, at most 104 for the longest horizon."""
    last = series.now - min(horizons)
    start = max(series.first + _MIN_HISTORY, series.now - max(horizons) - _MAX_AS_OFS + 1)
    return list(range(start, last + 1))


def with_every_dataset(rows: pd.DataFrame, series: Series, units: Sequence[int]) -> pd.DataFrame:
    """`rows` (features with code and unit) for every dataset known by each unit, sorted by unit and code.

    A dataset without a feature row was not read within the longest window: counts 0, times unknown.
    """
    known = [np.flatnonzero(series.born <= unit) for unit in units]
    pairs = pd.DataFrame(
        {
            "unit": np.repeat(np.asarray(units, dtype=np.int64), [len(codes) for codes in known]),
            "code": np.concatenate([np.empty(0, dtype=np.int64), *known]),
        }
    )
    merged = pairs.merge(rows, how="left", on=["unit", "code"], validate="one_to_one", sort=False)
    sums = [name for name in rows.columns if name.startswith(("n_", "read_bytes_", "decayed_"))]
    merged[sums] = merged[sums].fillna(0.0)
    return merged


def forecast(
    past: pd.DataFrame, present: pd.DataFrame, series: Series, spec: FeatureSpec, horizons: Sequence[int]
) -> list[HorizonForecast]:
    """A forecast per horizon (units, rising), for the rows of `present`: one per dataset, in order.

    `past`, `present`: as `with_every_dataset` gives for training units and for now. Horizons without enough
    matured labels extend the next shorter one at a constant rate; without any, a rate per dataset is used
    (`rate_forecast`). A longer horizon never has a lower probability or fewer expected reads than a shorter
    one: the running maximum is taken. Expected reads are never below the probability.
    """
    results: list[HorizonForecast] = []
    for n_units in horizons:
        learned = None
        rows = past[past["unit"] + n_units <= series.now].reset_index(drop=True)
        if len(rows) >= _MIN_ROWS:
            learned = _learned(rows, series, spec, n_units=n_units)
        if learned is not None:
            matrix = model_matrix(present, spec, learned.vocabulary, learned.columns)
            now = HorizonForecast(n_units, *learned.model.predict(matrix), _described(learned.model))
        else:
            now = _extended(results[-1], n_units) if results else rate_forecast(series, n_units)
        results.append(_rising(results[-1] if results else None, now))
    return results


def rate_forecast(series: Series, n_units: int) -> HorizonForecast:
    """A forecast without learning: each dataset's share of units with reads, fading since its last read.

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


def _learned(rows: pd.DataFrame, series: Series, spec: FeatureSpec, *, n_units: int) -> _Learned | None:
    """A model of the best learner; None if all labels of `rows` are alike, or all its columns are."""
    vocabulary = learn_vocabulary(rows, spec)
    matrix = model_matrix(rows, spec, vocabulary)
    columns = informative(matrix)
    code, unit = (rows[name].to_numpy(dtype=np.int64) for name in ("code", "unit"))
    reads = series.reads_within(code, unit, n_units)
    if not columns or not 0 < (reads > 0).sum() < len(reads):
        return None
    sample = Sample(matrix[columns], reads, unit)
    model = fit_best(_learners(len(rows)), sample, horizon_s=n_units)
    return _Learned(model, vocabulary, columns)


def _learners(n_rows: int) -> list[Learner]:
    """Small constrained trees, alone and blended with a linear model: series are short and drift.

    The blend comes first, for where the past is too short to choose: it was the better one on short pasts.
    """
    trees = LightGBM(trees=100, leaves=6, min_rows=min(300, max(5, n_rows // 100)), monotone=True, threads=1)
    return [Blend((trees, Linear())), trees]


def _described(model: CalibratedModel) -> str:
    return model.name if model.validation_log_loss is not None else f"{model.name}, uncalibrated: short past"


def _extended(shorter: HorizonForecast, n_units: int) -> HorizonForecast:
    stretch = n_units / shorter.n_units
    return HorizonForecast(
        n_units,
        1 - (1 - shorter.probability) ** stretch,
        shorter.expected * stretch,
        f"extended from {shorter.n_units}: too few matured labels",
    )


def _rising(shorter: HorizonForecast | None, now: HorizonForecast) -> HorizonForecast:
    probability = np.clip(now.probability, 0, 1)
    expected = np.maximum(now.expected, probability)
    if shorter is not None:
        probability = np.maximum(probability, shorter.probability)
        expected = np.maximum(np.maximum(expected, shorter.expected), probability)
    return dataclasses.replace(now, probability=probability, expected=expected)
