"""The weights of a mix of forecasts: what is best gets the weight, and the total is not lost."""

from __future__ import annotations

import numpy as np
import pytest

from features.common.arrays import FloatArray
from models.series.counts import fit_weights

N_DATASETS, N_UNITS = 200, 12
UNIT = np.repeat(np.arange(N_UNITS), N_DATASETS)
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
