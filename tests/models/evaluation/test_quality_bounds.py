"""Bounds of models' figures: how often they hold on drawn datasets, and a slow bootstrap."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from models.evaluation.metrics import LEAST_GROUPS, quality, quality_bounds, ranking_quality, times_drawn

FIGURES = ("auc", "average_precision", "calibration_error")


def drawn(seed: int, n_groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities and datasets; a dataset's files are read together, more than predicted."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), rng.geometric(1 / 20, n_groups))
    logit = -1.5 + rng.normal(0, 1.2, n_groups)[group] + rng.normal(0, 1, len(group))
    read = rng.random(len(group)) < 1 / (1 + np.exp(-logit - rng.normal(0, 1.2, n_groups)[group]))
    return read.astype(float), 1 / (1 + np.exp(-logit)), group


def test_the_true_figures_lie_between_the_bounds_as_often_as_they_say() -> None:
    truth = quality(*drawn(0, 20_000)[:2])
    outside: Counter[str] = Counter()
    for seed in range(1, 61):
        y, p, group = drawn(seed, 100)
        found = quality(y, p)
        bounds = quality_bounds(found, y, p, group)
        for name in FIGURES:
            low, high = bounds[f"{name}_lower"], bounds[f"{name}_upper"]
            assert low <= getattr(found, name) <= high
            outside[name] += not low <= getattr(truth, name) <= high
    # 6 of 60 are expected; those of a calibration error are wider: chance only adds to it.
    assert 1 <= outside["auc"] <= 13
    assert 1 <= outside["average_precision"] <= 13
    assert outside["calibration_error"] <= 10


def test_rows_of_a_dataset_are_drawn_together() -> None:
    y, p, group = drawn(1, 100)
    found = quality(y, p)
    together = quality_bounds(found, y, p, group)
    alone = quality_bounds(found, y, p, np.arange(len(y)))
    for name in ("auc", "average_precision"):
        widths = [one[f"{name}_upper"] - one[f"{name}_lower"] for one in (together, alone)]
        assert widths[0] > 1.3 * widths[1]


def test_bounds_equal_a_slow_bootstrap() -> None:
    y, p, group = drawn(2, 60)
    p = np.round(p, 2)  # with ties
    found = quality_bounds(quality(y, p), y, p, group)
    slow = []
    for times in times_drawn(60, 400):
        rows = np.repeat(np.arange(len(y)), times[group])
        slow.append((roc_auc_score(y[rows], p[rows]), average_precision_score(y[rows], p[rows])))
    low, high = np.quantile(slow, [0.05, 0.95], axis=0)
    for i, name in enumerate(("auc", "average_precision")):
        assert found[f"{name}_lower"] == pytest.approx(low[i])
        assert found[f"{name}_upper"] == pytest.approx(high[i])


def test_many_scores_are_compared_in_steps_that_are_fine_enough() -> None:
    y, p, group = drawn(3, 1000)
    assert len(np.unique(p)) > 10_000
    found = quality_bounds(quality(y, p), y, p, group)
    whole = quality_bounds(quality(y, np.round(p, 3)), y, np.round(p, 3), group)
    assert found == pytest.approx(whole, abs=0.002)


def test_scores_that_are_no_probabilities_have_no_calibration() -> None:
    y, p, group = drawn(4, 50)
    bounds = quality_bounds(ranking_quality(y, 10 * p), y, 10 * p, group)
    assert set(bounds) == {f"{name}_{end}" for name in FIGURES[:2] for end in ("lower", "upper")}


@pytest.mark.parametrize("n_groups", [1, LEAST_GROUPS - 1])
def test_few_datasets_have_no_bounds(n_groups: int) -> None:
    y, p, group = drawn(5, n_groups)
    assert not quality_bounds(quality(y, p), y, p, group)


def test_a_class_in_one_dataset_has_no_bounds() -> None:
    group = np.repeat(np.arange(30), 5)
    y = (group == 3).astype(float)
    p = np.linspace(0, 1, len(y))
    assert not quality_bounds(quality(y, p), y, p, group)
    assert math.isnan(quality(np.zeros(150), p).auc)
    assert not quality_bounds(quality(np.zeros(150), p), np.zeros(150), p, group)
