"""Model texts that LightGBM would end the process over, or that read outside their arrays."""

from __future__ import annotations

import re
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from features.common.errors import ModelError
from models.learning.learners import LightGBM, Trees
from models.learning.lightgbm_text import checked_text

COLUMNS = ["recency_s", "n_reads", "tier"]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x = pd.DataFrame({name: rng.random(2000).astype("float32") for name in COLUMNS})
    x["tier"] = np.floor(x["tier"] * 30)
    return x.mask(rng.random(x.shape) < 0.1)


@pytest.fixture(scope="module")
def text(rows: pd.DataFrame) -> str:
    """Trees with categorical splits, missing values and several leaves."""
    label: Any = ((rows["tier"] % 3 == 0) ^ (rows["recency_s"] > 0.6)).to_numpy(float)
    found = LightGBM(trees=3, leaves=12, min_rows=5, column_share=1.0).fit(rows, label).text
    assert re.search(r"num_cat=[1-9]", found)
    return found


def test_a_checked_text_scores_as_the_whole(rows: pd.DataFrame, text: str) -> None:
    whole = f"{text}\nparameters:\n[boosting: gbdt]\nend of parameters\n"
    assert checked_text(whole, COLUMNS) == text
    by_library = lgb.Booster(model_str=whole).predict(rows)
    np.testing.assert_allclose(Trees.of(whole, COLUMNS).score(rows), by_library, rtol=1e-12)


@pytest.mark.parametrize(("monotone", "min_rows"), [(True, 5), (False, 5000)])
def test_every_text_of_the_learner_passes(rows: pd.DataFrame, *, monotone: bool, min_rows: int) -> None:
    label: Any = (rows["recency_s"] > 0.6).to_numpy(float)
    learner = LightGBM(trees=3, min_rows=min_rows, monotone=monotone)
    fitted = learner.fit(rows, label)
    np.testing.assert_array_equal(Trees.of(fitted.text, COLUMNS).score(rows), fitted.score(rows))


@pytest.mark.parametrize(
    ("pattern", "forged"),
    [
        ("num_tree_per_iteration=1", "num_tree_per_iteration=0"),
        ("num_class=1", "num_class=100000000"),
        ("max_feature_idx=2", "max_feature_idx=90000000"),
        ("feature_names=recency_s", "feature_names=other"),
        ("version=v4", "version=v4\nversion=v4"),
        ("objective=binary sigmoid:1", "objective=custom"),
        (r"tree_sizes=\S+", "tree_sizes=99999999"),
        (r"tree_sizes=\S+ ", "tree_sizes="),
        (r"num_leaves=\d+", "num_leaves=200000"),
        (r"num_leaves=\d+", "num_leaves=-5"),
        (r"num_leaves=\d+", "num_leaves=1"),
        (r"num_cat=\d+", "num_cat=0"),
        (r"num_cat=\d+", "num_cat=900"),
        (r"split_feature=\d+", "split_feature=3"),
        (r"split_feature=\d+", "split_feature=-1"),
        (r"threshold=\S+", "threshold=nan"),
        (r"decision_type=\d+", "decision_type=64"),
        (r"decision_type=\d+", "decision_type=15"),
        (r"left_child=\S+", "left_child=50000000"),
        (r"left_child=\S+", "left_child=0"),
        (r"left_child=\S+", "left_child=4294967296"),
        (r"right_child=\S+", "right_child=-1"),
        (r"right_child=\S+", "right_child=-90000000"),
        (r"leaf_value=\S+", "leaf_value=nan"),
        (r"leaf_value=\S+", "leaf_value=1e999"),
        (r"cat_boundaries=\d+", "cat_boundaries=7"),
        (r"cat_boundaries=\d+", "cat_boundaries=-1"),
        (r"cat_threshold=\d+", "cat_threshold=-1"),
        (r"cat_threshold=\d+", "cat_threshold=4294967296"),
        (r"cat_threshold=\d+", "cat_threshold=1 2"),
        ("is_linear=0", "is_linear=1"),
        ("shrinkage=1\n", "shrinkage=1\nleaf_coeff=1\n"),
        ("end of trees", "Tree=7"),
        (r"Tree=\d+", "Tree"),
        ("tree\n", "tree\nå=1\n"),
    ],
)
def test_a_forged_text_is_refused(text: str, pattern: str, forged: str) -> None:
    assert re.search(pattern, text)
    changed = re.sub(pattern, forged, text)
    if "tree_sizes" not in pattern:  # a careful forger keeps the sizes right
        trees = re.split(r"(?=Tree=\d+\n)", changed[: changed.find("end of trees")])[1:]
        changed = re.sub(r"tree_sizes=.*", f"tree_sizes={' '.join(str(len(one)) for one in trees)}", changed)
    with pytest.raises(ModelError, match="LightGBM model is damaged"):
        checked_text(changed, COLUMNS)


def test_a_text_cut_short_anywhere_is_refused(text: str) -> None:
    end = text.index("end of trees\n") + len("end of trees\n")
    for length in range(0, end, 97):
        with pytest.raises(ModelError, match="LightGBM model is damaged"):
            checked_text(text[:length], COLUMNS)
