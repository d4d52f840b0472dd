"""What a plain series has as features, against plain loops; expected reads; both are blind to the future."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from features.common.arrays import FloatArray
from models.series.counts import fit_weights, rates_of
from models.series.features import Past, SeriesFeatures
from models.series.forecast import CutQuality, rolling_quality
from models.series.series import Series

N_DATASETS, N_UNITS = 80, 45


def series_of(reads: FloatArray) -> Series:
    """A series of days from `reads`, a row per dataset and a column per day, counted from 1."""
    code, day = np.nonzero(np.round(reads) > 0)
    names = [f"/A/set{i:03d}/B" for i in range(len(reads))]
    counts = np.round(reads)[code, day].astype(np.int64)
    return Series(86_400, reads.shape[1], names, np.ones(len(names), np.int64), code, day + 1, counts)


def wandering(rng: np.random.Generator) -> FloatArray:
    """Each day is the day before, but for a wide step, and nothing older helps."""
    return 100 * np.exp(np.cumsum(rng.normal(0, 0.4, (N_DATASETS, N_UNITS)), axis=1))


def weekly(rng: np.random.Generator) -> FloatArray:
    """Each dataset has its own reads for each day of the week."""
    week = rng.lognormal(4, 1.5, (N_DATASETS, 7)) * (rng.random((N_DATASETS, 7)) < 0.8)
    return np.tile(week, 7)[:, :N_UNITS] * rng.lognormal(0, 0.1, (N_DATASETS, N_UNITS))


def spells(rng: np.random.Generator) -> FloatArray:
    """Datasets start and stop at random; two of three days without reads."""
    level = rng.lognormal(5, 1, (N_DATASETS, 1))
    return level * (rng.random((N_DATASETS, N_UNITS)) < 0.35) * rng.lognormal(0, 0.3, (N_DATASETS, N_UNITS))


def judged(reads: FloatArray) -> CutQuality:
    """The mean of two forecasts of a day."""
    cuts = range(N_UNITS - 2, N_UNITS)
    rows = [dataclasses.asdict(row) for row in rolling_quality(series_of(reads), [1], cuts)]
    return CutQuality(**pd.DataFrame(rows).mean())


def test_where_the_last_value_is_best_the_forecast_follows_it() -> None:
    quality = judged(wandering(np.random.default_rng(2)))
    assert quality.last_absolute_error < min(quality.season_absolute_error, quality.recent_absolute_error)
    assert quality.absolute_error < quality.last_absolute_error * 1.06


def test_where_the_season_is_best_the_forecast_follows_it() -> None:
    quality = judged(weekly(np.random.default_rng(3)))
    assert quality.season_absolute_error < min(quality.last_absolute_error, quality.recent_absolute_error) / 2
    assert quality.absolute_error < quality.season_absolute_error * 1.25


def test_where_a_forecast_of_nothing_has_least_error_the_total_is_kept() -> None:
    quality = judged(spells(np.random.default_rng(4)))
    assert quality.absolute_error < min(quality.last_absolute_error, quality.season_absolute_error)
    assert quality.count_error < 0.35


@pytest.mark.parametrize("unit", [9, 30])
def test_simple_forecasts_know_nothing_after_their_unit(unit: int) -> None:
    reads = wandering(np.random.default_rng(5))
    poisoned = reads.copy()
    poisoned[:, unit:] *= 1e4
    everyone, units = np.arange(N_DATASETS), np.full(N_DATASETS, unit)
    then, now = (rates_of(series_of(values), everyone, units, 3) for values in (reads, poisoned))
    assert (then.windows == now.windows).all()
    assert (then.season == now.season).all()


UNIT = np.repeat(np.arange(12), 200)
RNG = np.random.default_rng(5)
RATE = RNG.lognormal(4, 2, len(UNIT))


def noisy(values: FloatArray, seed: int) -> FloatArray:
    return values * np.random.default_rng(seed).lognormal(0, 1, len(values))


def test_what_never_comes_gets_no_weight() -> None:
    assert fit_weights(RATE[:, None], np.zeros(len(UNIT)), UNIT) == pytest.approx(0, abs=0.02)


def test_a_unit_with_most_of_all_reads_does_not_decide_alone() -> None:
    first, second = noisy(RATE, 1), noisy(RATE, 2)
    huge = UNIT == 3
    reads = np.where(huge, 1e4 * second, first)
    forecasts = np.column_stack([np.where(huge, 1e4, 1) * first, np.where(huge, 1e4, 1) * second])
    assert fit_weights(forecasts, reads, UNIT)[0] > 0.8


def test_without_any_forecast_there_is_no_weight() -> None:
    assert fit_weights(np.zeros((len(UNIT), 2)), RATE, UNIT).tolist() == [0, 0]


NAMES = sorted(f"/MC/{year}/B{b}/R/S{i}/{b}.DST" for year in (2011, 2012) for b in "XY" for i in range(3))


def random_series(seed: int, n_units: int = 30, names: list[str] = NAMES) -> Series:
    rng = np.random.default_rng(seed)
    born = rng.integers(1, n_units // 2, len(names))
    grid = rng.random((len(names), n_units + 1)) < rng.uniform(0.05, 0.6, len(names))[:, None]
    grid &= np.arange(n_units + 1) >= born[:, None]
    code, unit = np.nonzero(grid)
    reads = rng.integers(1, 1000, len(code))
    return Series(604800, n_units, names, born, code.astype(np.int64), unit.astype(np.int64), reads)


def history(series: Series, code: int, unit: int) -> dict[int, int]:
    """Reads by unit, up to `unit`."""
    rows = zip(series.code.tolist(), series.unit.tolist(), series.reads.tolist(), strict=True)
    return {u: n for c, u, n in rows if c == code and u <= unit}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("unit", [3, 12, 29])
def test_every_column_is_what_a_plain_loop_counts(seed: int, unit: int) -> None:
    series = random_series(seed)
    features = SeriesFeatures(series)
    table = features.at(unit)
    past = {int(c): history(series, int(c), unit) for c in features.known(unit)}
    assert len(table) == len(past) == (series.born <= unit).sum()

    def decayed(code: int) -> float:
        return sum(0.5 ** ((unit - u) / 4) for u in past[code])

    for row, code in zip(table.to_dict("records"), past, strict=True):
        units = sorted(past[code], reverse=True)
        born = int(series.born[code])
        assert row["recency"] == (unit - units[0] if units else unit - born + 1)
        assert (row["age"], row["n_active"]) == (unit - born, len(units))
        assert row["n_active_4"] == sum(u > unit - 4 for u in units)
        assert row["n_reads_13"] == sum(n for u, n in past[code].items() if u > unit - 13)
        gaps = [a - b for a, b in itertools.pairwise(units)]
        for k in range(4):
            assert row[f"gap{k + 1}"] == gaps[k] if k < len(gaps) else np.isnan(row[f"gap{k + 1}"])
        assert row["last_volume"] == pytest.approx(np.log1p(past[code][units[0]]) if units else 0)
        assert row["decayed_4"] == pytest.approx(decayed(code), rel=1e-4)
        others = [c for c in past if c != code and NAMES[c].split("/")[:4] == NAMES[code].split("/")[:4]]
        assert row["prefix3_size"] == len(others)
        if others:
            assert row["prefix3_decayed_4"] == pytest.approx(np.mean([decayed(c) for c in others]), rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_no_feature_carries_a_planted_future(seed: int) -> None:
    """What follows is replaced by other reads of every dataset: not a bit of any feature changes."""
    series, unit = random_series(seed), 14
    late = series.unit > unit
    rng = np.random.default_rng(99)
    planted = dataclasses.replace(
        series, reads=np.where(late, rng.integers(1, 10**6, len(late)), series.reads)
    )
    is_kept = ~late | (rng.random(len(late)) < 0.5)
    thinned = dataclasses.replace(
        planted, code=series.code[is_kept], unit=series.unit[is_kept], reads=planted.reads[is_kept]
    )
    now = SeriesFeatures(series.until(unit)).at(unit)
    for future in (series, planted, thinned):
        pd.testing.assert_frame_equal(SeriesFeatures(future).at(unit), now, check_exact=True)


def test_rows_of_a_long_horizon_carry_no_planted_future() -> None:
    """Of a series longer than what is held in memory, whose oldest rows would lie before that."""
    series, n_units = random_series(1, n_units=300), 180
    late = series.unit > series.now - n_units
    planted = dataclasses.replace(series, reads=np.where(late, 10**6, series.reads))
    then, now = (Past(of).matured(n_units) for of in (series, planted))
    assert then is not None and now is not None
    assert (then.unit >= SeriesFeatures(series).first).all()
    pd.testing.assert_frame_equal(then.x, now.x, check_exact=True)
