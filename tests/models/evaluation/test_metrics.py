"""Metrics against scikit-learn's; how often their bounds hold."""

import math
from collections import Counter

import numpy as np
import pytest
from sklearn import metrics as reference
from sklearn.metrics import average_precision_score, roc_auc_score

from models.evaluation.metrics import quality, quality_bounds, times_drawn


def _example(weighted: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    rng = np.random.default_rng(3)
    p = rng.random(2000)
    y = (rng.random(2000) < p**2).astype(float)
    return y, p, rng.random(2000) if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
def test_figures_equal_those_of_scikit_learn(weighted: bool) -> None:
    y, p, w = _example(weighted)
    ours = quality(y, p, w)
    assert ours.auc == pytest.approx(reference.roc_auc_score(y, p, sample_weight=w))
    assert ours.average_precision == pytest.approx(reference.average_precision_score(y, p, sample_weight=w))
    assert ours.log_loss == pytest.approx(reference.log_loss(y, np.clip(p, 1e-6, 1 - 1e-6), sample_weight=w))
    assert ours.brier == pytest.approx(reference.brier_score_loss(y, p, sample_weight=w))


def test_calibration_error_of_ten_equal_bins() -> None:
    y, p, _ = _example(weighted=False)
    order = np.argsort(p)
    slow = sum(abs(p[b].mean() - y[b].mean()) * len(b) for b in np.array_split(order, 10)) / len(p)
    assert quality(y, p).calibration_error == pytest.approx(slow, abs=2e-3)


def test_one_class_has_no_ranking_but_a_loss() -> None:
    figures = quality([1, 1], [0.5, 0.5])
    assert math.isnan(figures.auc)
    assert figures.log_loss == pytest.approx(math.log(2))
    assert "auc" not in figures.numbers


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
        figures = quality(y, p)
        bounds = quality_bounds(figures, y, p, group)
        for name in FIGURES:
            low, high = bounds[f"{name}_lower"], bounds[f"{name}_upper"]
            assert low <= getattr(figures, name) <= high
            outside[name] += not low <= getattr(truth, name) <= high
    # 6 of 60 are expected; those of a calibration error are wider: chance only adds to it.
    assert 1 <= outside["auc"] <= 13
    assert 1 <= outside["average_precision"] <= 13
    assert outside["calibration_error"] <= 10


def test_rows_of_a_dataset_are_drawn_together() -> None:
    y, p, group = drawn(1, 100)
    figures = quality(y, p)
    together = quality_bounds(figures, y, p, group)
    alone = quality_bounds(figures, y, p, np.arange(len(y)))
    for name in ("auc", "average_precision"):
        widths = [bounds[f"{name}_upper"] - bounds[f"{name}_lower"] for bounds in (together, alone)]
        assert widths[0] > 1.3 * widths[1]


def test_bounds_equal_a_slow_bootstrap() -> None:
    y, p, group = drawn(2, 60)
    p = np.round(p, 2)  # with ties
    bounds = quality_bounds(quality(y, p), y, p, group)
    slow = []
    for times in times_drawn(60, 400):
        rows = np.repeat(np.arange(len(y)), times[group])
        slow.append((roc_auc_score(y[rows], p[rows]), average_precision_score(y[rows], p[rows])))
    low, high = np.quantile(slow, [0.05, 0.95], axis=0)
    for i, name in enumerate(("auc", "average_precision")):
        assert bounds[f"{name}_lower"] == pytest.approx(low[i])
        assert bounds[f"{name}_upper"] == pytest.approx(high[i])


def test_many_scores_are_compared_in_steps_that_are_fine_enough() -> None:
    y, p, group = drawn(3, 1000)
    assert len(np.unique(p)) > 10_000
    bounds = quality_bounds(quality(y, p), y, p, group)
    whole = quality_bounds(quality(y, np.round(p, 3)), y, np.round(p, 3), group)
    assert bounds == pytest.approx(whole, abs=0.002)
