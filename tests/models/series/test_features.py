"""The features of a plain series, against plain loops, and blind to the future."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from models.series.features import SeriesFeatures
from models.series.series import Series

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
    kept = ~late | (rng.random(len(late)) < 0.5)
    thinned = dataclasses.replace(
        planted, code=series.code[kept], unit=series.unit[kept], reads=planted.reads[kept]
    )
    now = SeriesFeatures(series.until(unit)).at(unit)
    for future in (series, planted, thinned):
        pd.testing.assert_frame_equal(SeriesFeatures(future).at(unit), now, check_exact=True)


def test_names_without_slashes_have_neighbours_by_age_alone() -> None:
    series = random_series(1, names=sorted(f"set{i}" for i in range(12)))
    table = SeriesFeatures(series).at(30)
    assert (table["last_size"] == 0).all()
    assert table["born_size"].max() > 0
