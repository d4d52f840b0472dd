"""Trees as arrays against LightGBM's own predictions."""

from __future__ import annotations

import functools

import lightgbm as lgb
import numpy as np
import pytest
from ladders import rates_of

from features.common.arrays import Float32Array, FloatArray
from features.common.errors import ModelError
from models.learning.learners import forest_of, probabilities
from replay.kernels.trees import LANES, Forest, join_models, margins, new_block

COLUMNS = tuple(f"Column_{i}" for i in range(3))


def sums(forest: Forest, rows: Float32Array) -> FloatArray:
    out = np.empty(len(rows))
    margins(forest, rows, new_block(forest), out)
    return out


@functools.cache
def trained(
    *, categorical: bool, missing: bool, zero_as_missing: bool = False, leaves: int = 15, seed: int = 1
) -> lgb.Booster:
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
        "num_leaves": leaves,
        "min_data_in_leaf": 10,
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
@pytest.mark.parametrize("leaves", [2, 15, 32, 33, 127])
def test_sums_of_trees_are_lightgbms(
    categorical: bool, missing: bool, zero_as_missing: bool, leaves: int
) -> None:
    booster = trained(
        categorical=categorical, missing=missing, zero_as_missing=zero_as_missing, leaves=leaves
    )
    forest, rows = forest_of(booster.model_to_string(), COLUMNS), strange_rows()
    thresholds = forest.threshold[np.abs(forest.threshold) > 1e-30]  # LightGBM rounds those of zero its way
    at_thresholds = np.full((thresholds.size, 3), 1.0, np.float32)
    at_thresholds[:, 0] = thresholds
    rows = np.concatenate([rows, at_thresholds, np.nextafter(at_thresholds, np.float32(np.inf))])
    expected = booster.predict(rows.astype(np.float64), raw_score=True)
    assert np.abs(sums(forest, rows) - expected).max() < 1e-12
    assert np.abs(probabilities(forest, rows) - booster.predict(rows.astype(np.float64))).max() < 1e-12
    assert probabilities(forest, rows[:0]).shape == (0,)
    np.testing.assert_array_equal(probabilities(forest, rows[3:20]), probabilities(forest, rows)[3:20])


def test_a_ladder_takes_each_horizon_s_own_trees() -> None:
    boosters = [trained(categorical=True, missing=True, seed=seed) for seed in (1, 2)]
    horizons_s = (3600.0, 86400.0)
    both = join_models([forest_of(b.model_to_string(), COLUMNS) for b in boosters], horizons_s)
    rows = strange_rows()[200 : 200 + LANES]
    near, far = (np.asarray(b.predict(rows.astype(np.float64))) for b in boosters)
    far = np.maximum(near, far)
    waited = horizons_s[0] * (1 - near / 2)
    expected = np.maximum(
        near / waited, far / (waited + (horizons_s[1] - horizons_s[0]) * (1 - (near + far) / 2))
    )
    assert rates_of(both, rows).tolist() == pytest.approx(expected.tolist(), rel=1e-12)


def test_a_model_of_one_leaf_is_its_value() -> None:
    x = np.zeros((500, 2))
    booster = lgb.train(
        {"objective": "binary", "verbosity": -1, "min_data_in_leaf": 400},
        lgb.Dataset(x, np.arange(500) % 2, params={"verbosity": -1}),
        2,
    )
    forest = forest_of(booster.model_to_string(), COLUMNS[:2])
    assert sums(forest, np.zeros((1, 2), np.float32))[0] == pytest.approx(
        float(np.asarray(booster.predict(x[:1], raw_score=True))[0]), abs=1e-12
    )


@pytest.mark.parametrize("value", [1e10, 2.0**63, 1e20, np.inf, -1e20, -np.inf, np.nan])
def test_a_category_beyond_all_integers_is_in_no_set(value: float) -> None:
    """Cast to an integer it could be any index of the set's words, also far outside."""
    forest = forest_of(trained(categorical=True, missing=False).model_to_string(), COLUMNS)
    assert forest.words.size
    of, unknown = sums(forest, np.array([row_of(value), row_of(1e6)]))
    assert of == unknown


def row_of(category: float) -> np.ndarray:
    return np.array([0.5, category, 1.0], np.float32)


def test_a_text_of_other_columns_or_cut_short_is_refused() -> None:
    text = trained(categorical=True, missing=True).model_to_string()
    with pytest.raises(ModelError, match="not of the columns"):
        forest_of(text, [*COLUMNS[1:], COLUMNS[0]])
    with pytest.raises(ModelError, match="cut short"):
        forest_of(text[: text.index("end of trees")], COLUMNS)
