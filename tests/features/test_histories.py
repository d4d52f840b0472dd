"""The state carried from cycle to cycle is the state rebuilt from the accesses, bit by bit."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from features.spark.features import features
from jobs.train.feature_state import Histories

from features.schema import ACCESSES, FILES, HISTORIES
from jobs.spark.table_io import read, replace
from jobs.store.tables import Tables
from jobs.train import features as job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

US = 1_000_000


def label(instant_s: int) -> str:
    return f"{dt.datetime.fromtimestamp(instant_s, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


def rows_of(frame: DataFrame) -> set[tuple[Any, ...]]:
    rows = [tuple(row) for row in frame.collect()]
    assert rows
    return set(rows)


def known_before(worlds: Any, as_of: int) -> Any:
    """What a site's tables hold at `as_of`; the catalogue is whole from the start."""
    return dataclasses.replace(worlds, reads=[r for r in worlds.reads if r.known < as_of * US])


@pytest.fixture(scope="module")
def worlds(make_worlds: Callable[..., Any]) -> Any:
    return make_worlds(7, n_worlds=30)


def test_a_day_at_a_time_is_the_same_as_one_rebuild(
    spark: SparkSession, tmp_path: Path, worlds: Any, frames: Callable[..., Any]
) -> None:
    spec, tables = worlds.spec, Tables(str(tmp_path))
    accesses, files = frames(worlds)
    replace(files, tables, FILES)
    histories = Histories(spark, tables, spec, "r", {})
    since = None
    for k in (5, 6, 20):  # the grid's next, and some left out, to where reads expire
        as_of = worlds.start + k * spec.cycle_s
        replace(frames(known_before(worlds, as_of))[0], tables, ACCESSES)
        snapshot = job.compute(spark, tables, spec=spec, region="r", as_ofs=[as_of])
        found = rows_of(read(spark, tables, spec.features_table, as_of=label(as_of)))
        assert found == rows_of(features(accesses, files, [as_of], spec=spec, region="r"))
        assert histories.at(as_of).since == label(as_of)  # it is there: nothing is computed
        kept = sorted(key[1] for key in tables.head(HISTORIES).partitions)
        assert kept == [label(a) for a in (since, as_of) if a is not None]
        since = as_of
    assert job.compute(spark, tables, spec=spec, region="r", as_ofs=[as_of]).id == snapshot.id


def test_it_is_carried_and_not_rebuilt_unless_a_record_came_too_late(
    spark: SparkSession, tmp_path: Path, worlds: Any, frames: Callable[..., Any]
) -> None:
    spec, tables = worlds.spec, Tables(str(tmp_path))
    first, second, third = (worlds.start + k * spec.cycle_s for k in (8, 9, 10))
    late = next(r for r in worlds.reads if (second - spec.history_s) * US <= r.at and r.known < first * US)
    on_time = dataclasses.replace(worlds, reads=[r for r in worlds.reads if r is not late])
    histories = Histories(spark, tables, spec, "r", {})
    for as_of, world, since in (
        (first, on_time, None),
        (second, on_time, label(first)),
        (third, worlds, None),
    ):
        replace(frames(known_before(world, as_of))[0], tables, ACCESSES)
        state = histories.at(as_of)
        assert state.since == since
        job.compute(spark, tables, spec=spec, region="r", as_ofs=[as_of])
        found = rows_of(read(spark, tables, spec.features_table, as_of=label(as_of)))
        assert found == rows_of(features(frames(world)[0], None, [as_of], spec=spec, region="r"))


def test_other_settings_rebuild_it(
    spark: SparkSession, tmp_path: Path, worlds: Any, frames: Callable[..., Any]
) -> None:
    spec, tables = worlds.spec, Tables(str(tmp_path))
    replace(frames(worlds)[0], tables, ACCESSES)
    as_ofs = [worlds.start + k * spec.cycle_s for k in (6, 7)]
    Histories(spark, tables, spec, "r", {}).at(as_ofs[0])
    assert Histories(spark, tables, spec, "r", {"*": "test"}).at(as_ofs[1]).since is None
    wider = dataclasses.replace(spec, windows_s=(*spec.windows_s, 18 * spec.cycle_s))
    assert Histories(spark, tables, wider, "r", {"*": "test"}).at(as_ofs[1]).since is None
