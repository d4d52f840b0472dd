"""Forecasts and rankings of series: better than recency at fixed cuts, calibrated, blind to the future."""

import dataclasses
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import IS_THOROUGH

from features.common.arrays import BoolArray
from models.series.features import Past
from models.series.forecast import CutQuality, Ranking, fit_ranking, forecast, rolling_quality
from models.series.series import Series, read_series
from replay.policies import POLICIES
from replay.trace import Trace

LHCB, CMS = "data/lhcb_weekly_1_78.csv.gz", "data/cms_daily_60d.csv.gz"
HORIZONS = [1, 4, 13] if IS_THOROUGH else [1, 13]


@pytest.fixture(scope="module")
def lhcb(shared: Callable[[str], Path]) -> Series:
    return read_series(shared(LHCB), "78")


@pytest.fixture(scope="module")
def weeks(lhcb: Series) -> dict[int, CutQuality]:
    return {row.horizon: row for row in rolling_quality(lhcb, HORIZONS, [60])}


@pytest.fixture(scope="module")
def days(shared: Callable[[str], Path]) -> list[CutQuality]:
    series = read_series(shared(CMS), "60")
    return list(rolling_quality(series, [1, 7, 14], [day + series.offset for day in (36, 41, 46)]))


@pytest.mark.parametrize(
    ("horizon", "auc", "precision"),
    [(1, 0.008, 1.2), pytest.param(4, 0.005, 1.1, marks=pytest.mark.verify), (13, 0.005, 1.03)],
)
def test_a_forecast_of_lhcb_weeks_ranks_better_than_recency(
    weeks: dict[int, CutQuality], horizon: int, auc: float, precision: float
) -> None:
    row = weeks[horizon]
    assert row.auc > row.recency_auc + auc
    assert row.average_precision > row.recency_average_precision * precision
    assert row.calibration_error < 0.12


def test_a_forecast_of_cms_days_counts_better_than_the_published_and_the_plain(
    days: list[CutQuality],
) -> None:
    assert {row.horizon for row in days} == {1, 7, 14}
    for horizon in (1, 7, 14):
        rows = pd.DataFrame([dataclasses.asdict(row) for row in days if row.horizon == horizon]).mean()
        assert rows["auc"] > rows["recency_auc"]
        assert rows["count_error"] < 0.779
        assert rows["median_count_error"] < rows["last_median_count_error"]
        for simple in ("last", "season", "recent"):
            assert rows["absolute_error"] < rows[f"{simple}_absolute_error"] * 0.95


def test_a_rank_is_the_same_at_every_horizon_and_no_row_ties_by_calibration(lhcb: Series) -> None:
    first, second = (result.probability for result in forecast(lhcb.until(24), [1, 4]))
    order = np.argsort(first, kind="stable")
    assert (np.diff(second[order]) >= 0).all()
    assert len(np.unique(second)) >= len(np.unique(first)) * 0.99


def test_until_is_what_reading_up_to_then_gives(shared: Callable[[str], Path], lhcb: Series) -> None:
    then, cut = read_series(shared(LHCB), "24"), lhcb.until(24)
    assert (cut.names, cut.now, cut.unit_s) == (then.names, then.now, then.unit_s)
    for field in ("born", "code", "unit", "reads"):
        assert (getattr(cut, field) == getattr(then, field)).all()


def weekly_trace(series: Series) -> Trace:
    """One access per (dataset, week) pair with reads; item i is dataset i of `series.names`.

    A dataset has size 1. The accesses of a week are a second apart, by the sha256 of `week:name`: the
    same in every run, and independent of the order of the source.
    """
    digests = [
        hashlib.sha256(f"{week}:{series.names[code]}".encode()).hexdigest()
        for code, week in zip(series.code.tolist(), series.unit.tolist(), strict=True)
    ]
    order = np.lexsort((np.array(digests), series.unit))
    week = series.unit[order]
    place = np.arange(week.size) - np.searchsorted(week, week)
    time_s = week * series.unit_s + place
    return Trace(time_s, series.code[order].astype(np.int32), np.ones(len(series.names), np.int64))


def test_weekly_caches_of_lhcb_meet_the_published_bounds(lhcb: Series) -> None:
    """LRU .0615/.2438 and clairvoyant with bypass .434/.596 on weeks 53-78, at 5 and 10 % of the datasets."""
    trace = weekly_trace(lhcb)
    hits: Callable[[], Any] = partial(np.zeros, trace.n_accesses, np.bool_)
    counted = trace.first_at(53 * lhcb.unit_s)
    shares = []
    for fraction in (0.05, 0.1):
        for name in ("lru", "clairvoyant-bypass"):
            hit = hits()
            POLICIES[name](trace, int(fraction * len(lhcb.names)), hit)
            shares.append(float(hit[counted:].mean()))
    assert shares == pytest.approx([0.0615, 0.434, 0.2438, 0.596], abs=5e-4)


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


def ranking_of(read: BoolArray) -> tuple[Past, Ranking]:
    past = Past(series_of(read))
    ranking = fit_ranking(past)
    assert ranking is not None
    return past, ranking


@pytest.mark.parametrize("seed", range(3))
def test_the_regression_ranks_along_where_counts_tell_all(seed: int) -> None:
    past, ranking = ranking_of(steady(seed))
    x = past.present().x
    both, alone = ranking.score(x), Ranking(ranking.trees, None).score(x)
    assert ranking.name == "lightgbm, logistic"
    assert (both > 0).all()
    assert (both < 1).all()
    assert (both != alone).any()


@pytest.mark.parametrize("read", [np.zeros((60, 40), bool), np.ones((60, 40), bool), np.ones((2, 8), bool)])
def test_one_class_or_a_short_past_has_no_ranking(read: BoolArray) -> None:
    assert fit_ranking(Past(series_of(read))) is None
