"""From scores to probabilities: what each map mends, and when it is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from models.evaluation.metrics import quality
from models.learning.calibration import (
    IDENTITY,
    by_hour,
    calibrate,
    hour_of_week,
    reads_if_any,
    shift,
    weekly,
)


def test_calibration_repairs_overconfidence() -> None:
    rng = np.random.default_rng(5)
    truth = rng.random(8000)
    y = (rng.random(8000) < truth).astype(float)
    odds = truth / (1 - truth)
    bold = odds**3 / (1 + odds**3)
    as_of = np.repeat(np.arange(8), 1000)
    half = as_of < 4
    knots = calibrate(bold[half], y[half], as_of[half])
    before, after = quality(y[~half], bold[~half]), quality(y[~half], knots(bold[~half]))
    assert knots.kind in {"platt", "isotonic"}
    assert after.calibration_error < before.calibration_error / 3
    assert after.log_loss < before.log_loss


def test_calibration_of_few_rows_changes_nothing() -> None:
    assert calibrate(np.array([0.1, 0.9]), np.array([0.0, 1.0]), np.array([1, 2])) is IDENTITY


def test_reads_if_any_rise_and_are_at_least_one() -> None:
    p = np.linspace(0, 1, 1000)
    reads = np.where(p > 0.2, np.round(1 + 9 * p), 0.0)
    knots = reads_if_any(p, reads)
    assert (np.diff(knots.y) >= 0).all()
    assert knots(np.array([0.95]))[0] == pytest.approx(9.5, rel=0.1)
    assert reads_if_any(p, np.zeros(1000))(np.array([0.5]))[0] == 1.0


def test_a_shift_moves_the_mean_and_nothing_else() -> None:
    rng = np.random.default_rng(4)
    true = rng.uniform(0.02, 0.6, 40_000)
    labels = (rng.random(true.size) < true).astype(np.float64)
    odds = true / (1 - true) * 3
    fitted = shift(odds / (1 + odds), labels)
    np.testing.assert_allclose(fitted(odds / (1 + odds)), true, atol=0.015)
    assert fitted.kind == "shift"
    assert shift(true, np.zeros(true.size)) is IDENTITY


def weeks(rng: np.random.Generator, *, weekend: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four weeks of predictions that know no weekend, what was read, and when; its odds are x `weekend`."""
    as_of = np.repeat(np.arange(28 * 4) * 6 * 3600, 400)
    p = rng.random(as_of.size)
    odds = p / (1 - p) * np.where(np.isin(as_of // 86400 % 7, (2, 3)), weekend, 1.0)
    return p, (rng.random(p.size) < odds / (1 + odds)).astype(float), as_of


def test_a_rhythm_of_the_week_is_learned_and_predicted_for_the_next() -> None:
    rng = np.random.default_rng(3)
    p, y, as_of = weeks(rng, weekend=0.4)
    week = weekly(p, y, as_of)
    saturday, tuesday = 2 * 24, 5 * 24
    assert week[saturday] == pytest.approx(np.log(0.4) * 4 / 5, abs=0.15)
    assert abs(week[tuesday]) < 0.15
    later, truth, times = weeks(rng, weekend=0.4)
    on_weekend = np.isin(times // 86400 % 7, (2, 3))
    corrected = by_hour(later, week, hour_of_week(times))
    assert later[on_weekend].mean() > 1.3 * truth[on_weekend].mean()
    assert corrected[on_weekend].mean() == pytest.approx(truth[on_weekend].mean(), rel=0.08)


def test_no_rhythm_is_learned_from_noise_or_few_rows() -> None:
    p, y, as_of = weeks(np.random.default_rng(4), weekend=1.0)
    assert weekly(p, y, as_of) == ()
    assert weekly(p[:60], y[:60], as_of[:60]) == ()
