"""Metrics against scikit-learn's, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics as reference

from models.evaluation.metrics import quality, ranking_quality, reliability


def _example(weighted: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    rng = np.random.default_rng(3)
    p = rng.random(2000)
    y = (rng.random(2000) < p**2).astype(float)
    return y, p, rng.random(2000) if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
def test_figures_equal_those_of_scikit_learn(weighted: bool) -> None:
    y, p, w = _example(weighted)
    found = quality(y, p, w)
    assert found.auc == pytest.approx(reference.roc_auc_score(y, p, sample_weight=w))
    assert found.average_precision == pytest.approx(reference.average_precision_score(y, p, sample_weight=w))
    assert found.log_loss == pytest.approx(reference.log_loss(y, np.clip(p, 1e-6, 1 - 1e-6), sample_weight=w))
    assert found.brier == pytest.approx(reference.brier_score_loss(y, p, sample_weight=w))


def test_calibration_error_of_ten_equal_bins() -> None:
    y, p, _ = _example(weighted=False)
    order = np.argsort(p)
    slow = sum(abs(p[b].mean() - y[b].mean()) * len(b) for b in np.array_split(order, 10)) / len(p)
    assert quality(y, p).calibration_error == pytest.approx(slow, abs=2e-3)


def test_equal_probabilities_share_a_bin() -> None:
    curve = reliability([0, 1, 1, 1], [0.5, 0.5, 0.5, 0.9])
    assert [(b.predicted, b.weight) for b in curve] == [(0.5, 3.0), (0.9, 1.0)]
    assert curve[0].observed == pytest.approx(2 / 3)


def test_one_class_has_no_ranking_but_a_loss() -> None:
    found = quality([1, 1], [0.5, 0.5])
    assert math.isnan(found.auc)
    assert found.log_loss == pytest.approx(math.log(2))
    assert "auc" not in found.numbers


def test_scores_are_only_ranked() -> None:
    found = ranking_quality([0, 1, 1], [-5.0, 3.0, 100.0])
    assert found.auc == 1.0
    assert set(found.numbers) == {"auc", "average_precision", "n_rows", "positive_share"}


def test_empty_input_is_refused() -> None:
    with pytest.raises(ValueError, match="equal lengths"):
        quality([], [])
