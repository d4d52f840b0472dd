"""Expected reads follow what forecasts a series best, keep its total and see no future; weights of a mix."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from features.common.arrays import FloatArray
from models.series.counts import Rates, fit_weights, rates_of
from models.series.features import Past
from models.series.forecast import CutQuality, rolling_quality
from models.series.series import Series

N_DATASETS, N_UNITS = 80, 45


def series_of(reads: FloatArray) -> Series:
    """A series of days from `reads`, a row per dataset and a column per day, counted from 1."""
    code, day = np.nonzero(np.round(reads) > 0)
    names = [f"/A/set{i:03d}/B" for i in range(len(reads))]
    counts = np.round(reads)[code, day].astype(np.int64)
    return Series(86_400, reads.shape[1], names, np.ones(len(names), np.int64), code, day + 1, counts)


def wandering(rng: np.random.Generator) -> FloatArray:
    """Each day is the day before, but for a wide step, and nothing older helps."""
    return 100 * np.exp(np.cumsum(rng.normal(0, 0.4, (N_DATASETS, N_UNITS)), axis=1))


def weekly(rng: np.random.Generator) -> FloatArray:
    """Each dataset has its own reads for each day of the week."""
    week = rng.lognormal(4, 1.5, (N_DATASETS, 7)) * (rng.random((N_DATASETS, 7)) < 0.8)
    return np.tile(week, 7)[:, :N_UNITS] * rng.lognormal(0, 0.1, (N_DATASETS, N_UNITS))


def spells(rng: np.random.Generator) -> FloatArray:
    """Datasets start and stop at random; two of three days without reads."""
    level = rng.lognormal(5, 1, (N_DATASETS, 1))
    return level * (rng.random((N_DATASETS, N_UNITS)) < 0.35) * rng.lognormal(0, 0.3, (N_DATASETS, N_UNITS))


def judged(reads: FloatArray) -> CutQuality:
    """The mean of two forecasts of a day."""
    cuts = range(N_UNITS - 2, N_UNITS)
    rows = [dataclasses.asdict(row) for row in rolling_quality(series_of(reads), [1], cuts)]
    return CutQuality(**pd.DataFrame(rows).mean())


def test_where_the_last_value_is_best_the_forecast_follows_it() -> None:
    quality = judged(wandering(np.random.default_rng(2)))
    assert quality.last_absolute_error < min(quality.season_absolute_error, quality.recent_absolute_error)
    assert quality.absolute_error < quality.last_absolute_error * 1.06


def test_where_the_season_is_best_the_forecast_follows_it() -> None:
    quality = judged(weekly(np.random.default_rng(3)))
    assert quality.season_absolute_error < min(quality.last_absolute_error, quality.recent_absolute_error) / 2
    assert quality.absolute_error < quality.season_absolute_error * 1.25


def test_where_a_forecast_of_nothing_has_least_error_the_total_is_kept() -> None:
    quality = judged(spells(np.random.default_rng(4)))
    assert quality.absolute_error < min(quality.last_absolute_error, quality.season_absolute_error)
    assert quality.count_error < 0.35


@pytest.mark.parametrize("unit", [9, 30])
def test_a_row_knows_nothing_after_its_unit(unit: int) -> None:
    reads = wandering(np.random.default_rng(5))
    poisoned = reads.copy()
    poisoned[:, unit:] *= 1e4

    def known_at(values: FloatArray) -> tuple[pd.DataFrame, Rates]:
        series = series_of(values)
        rows = Past(series.until(unit)).present()
        return rows.x, rates_of(series, rows.code, rows.unit, 3)

    (then_x, then), (now_x, now) = known_at(reads), known_at(poisoned)
    pd.testing.assert_frame_equal(then_x, now_x, check_exact=True)
    assert (then.windows == now.windows).all()
    assert (then.season == now.season).all()


UNIT = np.repeat(np.arange(12), 200)
RNG = np.random.default_rng(5)
RATE = RNG.lognormal(4, 2, len(UNIT))


def noisy(values: FloatArray, seed: int) -> FloatArray:
    return values * np.random.default_rng(seed).lognormal(0, 1, len(values))


def test_what_never_comes_gets_no_weight() -> None:
    assert fit_weights(RATE[:, None], np.zeros(len(UNIT)), UNIT) == pytest.approx(0, abs=0.02)


def test_a_unit_with_most_of_all_reads_does_not_decide_alone() -> None:
    first, second = noisy(RATE, 1), noisy(RATE, 2)
    huge = UNIT == 3
    reads = np.where(huge, 1e4 * second, first)
    forecasts = np.column_stack([np.where(huge, 1e4, 1) * first, np.where(huge, 1e4, 1) * second])
    assert fit_weights(forecasts, reads, UNIT)[0] > 0.8


def test_without_any_forecast_there_is_no_weight() -> None:
    assert fit_weights(np.zeros((len(UNIT), 2)), RATE, UNIT).tolist() == [0, 0]
