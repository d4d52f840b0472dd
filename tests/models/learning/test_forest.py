"""Trees as arrays against LightGBM's own predictions."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest

from models.learning.forest import forest_of, probabilities
from replay.forest import hit_rate, ladder, margin


def trained(*, categorical: bool, missing: bool, zero_as_missing: bool = False, seed: int = 1) -> lgb.Booster:
    draw = np.random.default_rng(seed)
    x = np.column_stack(
        [draw.normal(size=4000), draw.integers(0, 70, 4000), draw.choice([0.0, 1.0, 3.0], 4000)]
    )
    y = (x[:, 0] + (x[:, 1] % 7 == 3) + 0.3 * x[:, 2] + draw.normal(size=4000) > 0.8).astype(float)
    if missing:
        x[draw.random(4000) < 0.2, 0] = np.nan
        x[draw.random(4000) < 0.1, 1] = np.nan
    parameters = {
        "objective": "binary",
        "verbosity": -1,
        "num_leaves": 15,
        "zero_as_missing": zero_as_missing,
        "num_threads": 1,
    }
    data = lgb.Dataset(x, y, categorical_feature=[1] if categorical else [], params={"verbosity": -1})
    return lgb.train(parameters, data, 25)


def strange_rows() -> np.ndarray:
    """Rows with values that training never saw: missing, negative and huge categories, infinities."""
    values = [np.nan, -1.0, 0.0, 1e-36, 0.5, 3.0, 69.0, 70.0, 1e6, np.inf, -np.inf]
    grid = np.array([(a, b, c) for a in values for b in values[:9] for c in values])
    return grid.astype(np.float32)


@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("zero_as_missing", [False, True])
def test_sums_of_trees_are_lightgbms(categorical: bool, missing: bool, zero_as_missing: bool) -> None:
    booster = trained(categorical=categorical, missing=missing, zero_as_missing=zero_as_missing)
    forest, rows = forest_of(booster.model_to_string()), strange_rows()
    expected = booster.predict(rows.astype(np.float64), raw_score=True)
    found = [margin(forest, 0, forest.root.size, x) for x in rows]
    assert np.abs(np.array(found) - expected).max() < 1e-12
    assert np.abs(probabilities(forest, rows) - booster.predict(rows.astype(np.float64))).max() < 1e-12
    assert probabilities(forest, rows[:0]).shape == (0,)
    np.testing.assert_array_equal(probabilities(forest, rows[3:20]), probabilities(forest, rows)[3:20])


def test_a_ladder_takes_each_horizon_s_own_trees() -> None:
    boosters = [trained(categorical=True, missing=True, seed=seed) for seed in (1, 2)]
    horizons_s = (3600.0, 86400.0)
    both = ladder([forest_of(b.model_to_string()) for b in boosters], horizons_s)
    rows = strange_rows()[:200]
    near, far = (np.asarray(b.predict(rows.astype(np.float64))) for b in boosters)
    far = np.maximum(near, far)
    waited = horizons_s[0] * (1 - near / 2)
    expected = np.maximum(
        near / waited, far / (waited + (horizons_s[1] - horizons_s[0]) * (1 - (near + far) / 2))
    )
    assert [hit_rate(both, x) for x in rows] == pytest.approx(expected.tolist(), rel=1e-12)


def test_a_model_of_one_leaf_is_its_value() -> None:
    x = np.zeros((500, 2))
    booster = lgb.train(
        {"objective": "binary", "verbosity": -1, "min_data_in_leaf": 400},
        lgb.Dataset(x, np.arange(500) % 2, params={"verbosity": -1}),
        2,
    )
    forest = forest_of(booster.model_to_string())
    row = np.zeros(2, np.float32)
    assert margin(forest, 0, forest.root.size, row) == pytest.approx(
        float(np.asarray(booster.predict(x[:1], raw_score=True))[0]), abs=1e-12
    )
