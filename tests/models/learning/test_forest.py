"""Matrices, samples and splits in time; trees as arrays against LightGBM's own predictions."""

import functools
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ladders import rates_of

from features.common.arrays import Float32Array, FloatArray
from features.common.errors import ModelError, SchemaError
from features.spec import FeatureSpec
from models.learning.frame import (
    HorizonParts,
    arrow_matrix,
    horizon_parts,
    known_by,
    learn_vocabulary,
    model_matrix,
    sampled,
    time_split,
)
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


SPEC = FeatureSpec(cycle_s=3600, horizons_s=(3600, 7200), candidate_s=86400, active_dataset_s=3600)


@given(
    as_ofs=st.lists(st.integers(0, 500), min_size=1, max_size=40),
    horizon_s=st.integers(1, 100),
    share=st.floats(0.01, 0.99),
)
def test_a_split_keeps_one_horizon_between_its_parts(as_ofs: list[int], horizon_s: int, share: float) -> None:
    times = sorted(set(as_ofs))
    after = times[-max(1, round(share * len(times))) :]
    if before := [at for at in times if at + horizon_s <= after[0]]:
        split = time_split(as_ofs, horizon_s=horizon_s, share=share)
        assert (list(split.before), list(split.after)) == (before, after)
    else:
        with pytest.raises(ModelError, match="decision times are too few"):
            time_split(as_ofs, horizon_s=horizon_s, share=share)


def _rows(n: int) -> pd.DataFrame:
    rows = pd.DataFrame({name: np.arange(n, dtype=float) for name in SPEC.numeric_columns})
    words: Any = ["AOD", "AOD", None, "RAW"][:n] + ["AOD"] * max(0, n - 4)
    return rows.assign(**dict.fromkeys(SPEC.categorical_columns, words))


def test_a_matrix_codes_words_and_keeps_nulls() -> None:
    rows = _rows(4)
    rows.loc[1, "recency_s"] = None
    words = learn_vocabulary(rows, SPEC)
    assert words == {key: ["AOD", "RAW"] for key in SPEC.categorical_columns}
    tiers: Any = ["RAW", "NEW", None, "AOD"]
    unknown = rows.assign(tier=tiers)
    matrix = model_matrix(unknown, SPEC, words)
    assert list(matrix.columns) == [*SPEC.numeric_columns, *SPEC.categorical_columns]
    assert set(matrix.dtypes) == {np.dtype("float32")}
    np.testing.assert_array_equal(matrix["tier"], np.array([1, np.nan, np.nan, 0], dtype="float32"))
    assert np.isnan(matrix["recency_s"][1])


def test_rows_of_arrow_give_the_same_matrix() -> None:
    rows = _rows(4)
    rows.loc[1, "recency_s"] = None
    words = {key: ["RAW", "AOD"] for key in SPEC.categorical_columns}
    expected = model_matrix(rows, SPEC, words)
    (batch,) = pa.Table.from_pandas(rows).to_batches()
    np.testing.assert_array_equal(arrow_matrix(batch, words, list(expected.columns)), expected.to_numpy())
    with pytest.raises(SchemaError, match="gap_9_s"):
        arrow_matrix(batch, words, ["gap_9_s"])


def test_rows_of_a_dataset_share_a_number_and_rows_without_one_have_their_own() -> None:
    rows = _rows(20).assign(as_of_s=np.arange(20) * 3600, n_access_within_2h=1.0)
    rows["dataset"] = ["d1", None, "d1", None] + ["d2"] * 16
    dataset = _parts(rows, 30).everything.sample.dataset
    assert dataset is not None
    assert dataset[0] == dataset[2]
    assert len(set(dataset[:5].tolist())) == 4


def test_a_sample_is_the_same_whatever_else_there_is() -> None:
    dids = [f"s:{i}" for i in range(20_000)]
    keep = sampled(dids, "2026-03-01T00:00:00Z", 0.25)
    assert keep.mean() == pytest.approx(0.25, abs=0.02)
    np.testing.assert_array_equal(sampled(dids[100:200], "2026-03-01T00:00:00Z", 0.25), keep[100:200])
    other = sampled(dids, "2026-03-01T01:00:00Z", 0.25)
    assert (keep & other).mean() == pytest.approx(0.0625, abs=0.01)
    assert sampled(dids, "x", 1.5).all()


def _parts(rows: pd.DataFrame, until_h: int) -> HorizonParts:
    words = {name: ["AOD", "RAW", "LATE"] for name in SPEC.categorical_columns}
    everything = known_by(rows, SPEC, horizon_s=7200, until_s=until_h * 3600, vocabulary=words)
    return horizon_parts(rows, SPEC, everything, share=0.3, until_s=until_h * 3600)


def test_the_parts_of_a_horizon_learn_nothing_from_the_test() -> None:
    rows = _rows(20).assign(as_of_s=np.arange(20) * 3600, n_access_within_1h=1.0, n_access_within_2h=1.0)
    rows.loc[rows["as_of_s"] >= 14 * 3600, "tier"] = "LATE"
    parts = _parts(rows, 21)
    assert parts.test.as_of.max() == 19 * 3600
    assert parts.train.until_s <= parts.test.as_of.min()
    assert "LATE" not in parts.train.vocabulary["tier"]
    unmatured = _parts(rows, 18)
    assert unmatured.test.as_of.max() == 16 * 3600


def test_what_is_served_learns_all_that_has_matured_and_nothing_later() -> None:
    rows = _rows(20).assign(as_of_s=np.arange(20) * 3600, n_access_within_1h=1.0, n_access_within_2h=1.0)
    rows.loc[rows["as_of_s"] >= 14 * 3600, "tier"] = "LATE"
    everything = _parts(rows, 18).everything
    assert everything.until_s == 18 * 3600
    assert everything.sample.as_of.tolist() == [a * 3600 for a in range(17)]
    assert "LATE" in everything.vocabulary["tier"]
