"""The ranking of a series: a regression steadies the trees, unless the trees surely rank better alone."""

from __future__ import annotations

import numpy as np
import pytest

from features.common.arrays import BoolArray
from models.series.features import Past
from models.series.forecast import Ranking, fit_ranking
from models.series.series import Series

N_DATASETS, N_UNITS = 60, 40


def series_of(read: BoolArray) -> Series:
    """A series of weeks; `read`: a row per dataset, a column per week from 1, all known from the first."""
    code, place = np.nonzero(read)
    names = [f"/A/set{i:03d}/B" for i in range(len(read))]
    born = np.ones(len(names), np.int64)
    return Series(604_800, read.shape[1], names, born, code, place + 1, np.ones(len(code), np.int64))


def steady(seed: int) -> BoolArray:
    """Each dataset is read at a rate of its own, so that decayed counts tell all there is to know."""
    rng = np.random.default_rng(seed)
    return rng.random((N_DATASETS, N_UNITS)) < rng.beta(0.4, 2, N_DATASETS)[:, None]


def every_fourth(seed: int) -> BoolArray:
    """Each dataset is read every fourth week, now and then another one: recency has a peak, not a slope."""
    rng = np.random.default_rng(seed)
    due = (np.arange(N_UNITS) + rng.integers(0, 4, N_DATASETS)[:, None]) % 4 == 0
    return np.where(rng.random(due.shape) < 0.15, ~due, due)


def ranking_of(read: BoolArray) -> tuple[Past, Ranking]:
    past = Past(series_of(read))
    found = fit_ranking(past)
    assert found is not None
    return past, found


@pytest.mark.parametrize("seed", range(3))
def test_the_regression_ranks_along_where_counts_tell_all(seed: int) -> None:
    past, found = ranking_of(steady(seed))
    x = past.present().x
    both, alone = found.score(x), Ranking(found.trees, None).score(x)
    assert found.name == "lightgbm, logistic"
    assert (both > 0).all()
    assert (both < 1).all()
    assert (both != alone).any()


def test_the_regression_is_left_out_where_the_trees_surely_rank_better() -> None:
    past, found = ranking_of(every_fourth(1))
    assert found.name == "lightgbm"
    x = past.present().x
    assert (found.score(x) == found.trees.score(x)).all()


def test_the_score_is_the_mean_of_the_log_odds() -> None:
    past, found = ranking_of(steady(5))
    assert found.regression is not None
    x = past.present().x
    columns = [name for name in x if name in ("recency", "age") or "decayed_" in name]
    parts = [found.trees.score(x), found.regression.score(x[columns].fillna(0))]
    odds = np.mean([np.log(p / (1 - p)) for p in parts], axis=0)
    assert found.score(x) == pytest.approx(1 / (1 + np.exp(-odds)))


@pytest.mark.parametrize("read", [np.zeros((60, 40), bool), np.ones((60, 40), bool), np.ones((2, 8), bool)])
def test_one_class_or_a_short_past_has_no_ranking(read: BoolArray) -> None:
    assert fit_ranking(Past(series_of(read))) is None
