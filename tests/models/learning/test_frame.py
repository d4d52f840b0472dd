"""Matrices, samples and splits in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

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

SPEC = FeatureSpec(cycle_s=3600, horizons_s=(3600, 7200), candidate_s=86400, active_dataset_s=3600)


@given(
    as_ofs=st.lists(st.integers(0, 500), min_size=1, max_size=40),
    horizon_s=st.integers(1, 100),
    share=st.floats(0.01, 0.99),
)
def test_a_split_keeps_one_horizon_between_its_parts(as_ofs: list[int], horizon_s: int, share: float) -> None:
    try:
        split = time_split(as_ofs, horizon_s=horizon_s, share=share)
    except ModelError:
        return
    assert split.before
    assert split.after
    assert max(split.before) + horizon_s <= min(split.after)
    between = {a for a in as_ofs if split.before[-1] < a < split.after[0]}
    assert set(split.before) | set(split.after) | between == set(as_ofs)
    assert all(a + horizon_s > split.after[0] for a in between)


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
    found = _parts(rows, 30).everything.sample.dataset
    assert found is not None
    assert found[0] == found[2]
    assert len(set(found[:5].tolist())) == 4


def test_a_matrix_refuses_rows_without_its_columns() -> None:
    with pytest.raises(SchemaError, match="recency_s"):
        model_matrix(_rows(3).drop(columns="recency_s"), SPEC, {key: [] for key in SPEC.categorical_columns})


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
