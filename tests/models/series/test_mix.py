"""The weights of a mix of forecasts: what is best gets the weight, and the total is not lost."""

from __future__ import annotations

import numpy as np
import pytest

from features.arrays import FloatArray
from models.series.mix import fit_weights

N_DATASETS, N_UNITS = 200, 12
UNIT = np.repeat(np.arange(N_UNITS), N_DATASETS)
RNG = np.random.default_rng(5)
RATE = RNG.lognormal(4, 2, len(UNIT))


def noisy(values: FloatArray, seed: int) -> FloatArray:
    return values * np.random.default_rng(seed).lognormal(0, 1, len(values))


@pytest.mark.parametrize("best", range(3))
def test_the_forecast_that_was_right_gets_the_weight(best: int) -> None:
    forecasts = np.column_stack([noisy(RATE, seed) for seed in range(3)])
    weights = fit_weights(forecasts, forecasts[:, best], UNIT)
    assert weights[best] == pytest.approx(1, abs=0.05)
    assert weights.sum() <= 1 + 1e-6


def test_a_total_is_kept_where_the_least_error_forecasts_nothing() -> None:
    """Read with chance .4 at the rate: the median is 0, the total .4 of the rates'."""
    rate = RNG.lognormal(4, 0.5, len(UNIT))
    reads = rate * (RNG.random(len(UNIT)) < 0.4)
    weights = fit_weights(rate[:, None], reads, UNIT)
    assert weights * rate.sum() == pytest.approx(reads.sum(), rel=0.15)


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
