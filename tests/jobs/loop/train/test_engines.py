"""Features and labels as the jobs write them: the same by both engines, after crashes, and by states."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from labels_oracle import US, expected
from local_engines import LOCAL
from region_oracle import usable_s
from worlds import Worlds, random_worlds, tables_of

from features.common.times import as_of_label, parse_as_of
from features.schema import ACCESSES, CONSUMED, DORMANT, FILES, STATES, Table
from features.spec import FeatureSpec
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.train import features as job
from jobs.loop.train.engines import RegionData
from jobs.loop.train.local_engine import LocalEngine
from jobs.loop.train.states import States

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.loop.train.engines import Engine


@dataclasses.dataclass(frozen=True)
class Only:
    """Always this engine."""

    same: Engine

    def engine(self, n_rows: int) -> Engine:
        return self.same


def fill(tables: Tables, worlds: Worlds, *, known_by_s: int | None = None) -> Tables:
    """Write the worlds, or what is known of the reads by a time."""
    reads = worlds.reads
    if known_by_s is not None:
        reads = [r for r in reads if usable_s(r, worlds.spec.cycle_s) <= known_by_s]
    accesses, files = tables_of(dataclasses.replace(worlds, reads=reads))
    tables.replace_arrow(ACCESSES, accesses)
    tables.replace_arrow(FILES, files)
    return tables


def compute(tables: Tables, worlds: Worlds, as_ofs: list[int], engines: Any = LOCAL) -> None:
    job.compute(RegionData(engines, tables, worlds.spec, "r"), as_ofs)


def written(tables: Tables, table: Table, as_of_s: int | None = None) -> dict[str, list[Any]]:
    """A table's columns, its rows in order."""
    rows = tables.read_arrow(table, as_of=None if as_of_s is None else as_of_label(as_of_s))
    rows = rows.sort_by([(name, "ascending") for name in (*table.partition, *table.key)])
    return rows.to_pydict()


def states_of(tables: Tables, spec: FeatureSpec) -> States:
    return States(tables, spec, "r", {}, lambda days: LocalEngine())


def check_rebuilt(carried: Tables, worlds: Worlds, as_of_s: int, *tables: Table) -> Tables:
    """The features and `tables` are those made of all reads at once, which are returned."""
    rebuilt = fill(Tables(f"{carried.root}-{as_of_s}"), worlds)
    compute(rebuilt, worlds, [as_of_s])
    for table in (worlds.spec.features_table, *tables):
        assert written(carried, table, as_of_s) == written(rebuilt, table, as_of_s)
    return rebuilt


def instants(worlds: Worlds, *cycles: int) -> list[int]:
    return [worlds.start + k * worlds.spec.cycle_s for k in cycles]


@pytest.mark.parametrize("reads", ["as drawn", "without datasets"])
def test_spark_in_several_parts_writes_what_this_process_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    from jobs.loop.train import spark_engine  # noqa: PLC0415  only where Spark is

    monkeypatch.setattr(spark_engine, "ROWS_PER_PART", 100)
    worlds = random_worlds(11, n_worlds=15)
    if reads == "without datasets":  # a cache's records; the catalogue has them
        worlds.reads[:] = [dataclasses.replace(read, dataset=None) for read in worlds.reads]
    spec, times = worlds.spec, instants(worlds, 6, 13, 20)
    folders = {}
    for name, engine in (("here", LocalEngine()), ("spark", spark_engine.SparkEngine(spark))):
        tables = folders[name] = Tables(str(tmp_path / name))
        for as_of_s in times:
            fill(tables, worlds, known_by_s=as_of_s)
            compute(tables, worlds, [as_of_s], Only(engine))
        compute(tables, worlds, times[1:], Only(engine))
        data = RegionData(Only(engine), tables, spec, "r")  # type: ignore[arg-type]
        job.label(data, until_s=times[2] + 3600)
    here, there = folders.values()
    for table in (spec.features_table, STATES, DORMANT, CONSUMED, spec.labels_table):
        by_spark, by_us = written(there, table), written(here, table)
        if table is CONSUMED:  # equal rows are other bytes in the files of another engine
            assert len(by_spark.pop("digest")) == len(by_us.pop("digest"))
        assert by_spark == by_us, table.name
        assert by_spark[table.key[0]]


def test_labels_of_stored_features_equal_plain_loops(tmp_path: Path) -> None:
    worlds = random_worlds(4, n_worlds=6)
    tables, as_ofs = fill(Tables(str(tmp_path)), worlds), instants(worlds, 8, 9, 2000)
    compute(tables, worlds, as_ofs)
    until_s = as_ofs[1] + max(worlds.spec.horizons_s)
    job.label(RegionData(LOCAL, tables, worlds.spec, "r"), until_s=until_s)
    rows = tables.read_arrow(worlds.spec.labels_table).to_pylist()
    features = tables.read_arrow(worlds.spec.features_table, columns=["did", "as_of"]).to_pylist()
    assert {(row["did"], row["as_of"]) for row in rows} == {(row["did"], row["as_of"]) for row in features}
    for row in rows:
        at = parse_as_of(row["as_of"])
        labels = expected(worlds, row["did"], at, until_s)
        assert {name: row[name] for name in labels} == labels


def test_a_cycle_at_a_time_is_the_same_as_one_rebuild(tmp_path: Path) -> None:
    worlds = random_worlds(7, n_worlds=20)
    carried, times = Tables(str(tmp_path / "carried")), instants(worlds, 5, 6, 9, 20)
    since: MomentKey | None = None
    for as_of_s in times:
        fill(carried, worlds, known_by_s=as_of_s)
        states = states_of(carried, worlds.spec)
        assert states.source(carried.snapshot(ACCESSES), as_of_s).since == since
        compute(carried, worlds, [as_of_s])
        check_rebuilt(carried, worlds, as_of_s, STATES)
        as_ofs = sorted(key[1] for key in carried.head(STATES).partitions)
        assert as_ofs == [key.as_of for key in (since,) if key is not None] + [as_of_label(as_of_s)]
        since = MomentKey.at(as_of_s, "r")
    before = carried.head(worlds.spec.features_table).id
    compute(carried, worlds, [as_of_s])
    assert carried.head(worlds.spec.features_table).id == before


def test_a_state_is_written_once_a_day_while_little_is_new(tmp_path: Path) -> None:
    worlds = random_worlds(7, n_worlds=20)
    *times, later = instants(worlds, 7, 8, 9, 11, 12, 13, 14)  # 12 is midnight
    few = [r for r in worlds.reads if r.did[:3] == "w3:" or usable_s(r, worlds.spec.cycle_s) <= times[0]]
    worlds = dataclasses.replace(worlds, reads=few)
    tables = Tables(str(tmp_path / "carried"))
    for as_of_s in times:
        fill(tables, worlds, known_by_s=as_of_s)
        compute(tables, worlds, [as_of_s])
        check_rebuilt(tables, worlds, as_of_s)
        at_s = [times[0]] if as_of_s < times[4] else [times[0], times[4]]
        assert sorted(key[1] for key in tables.head(STATES).partitions) == [as_of_label(at) for at in at_s]
    since = MomentKey.at(times[4], "r")
    late = dataclasses.replace(worlds.reads[0], at=times[4] * US, known=times[4] * US, n=77)
    fill(tables, dataclasses.replace(worlds, reads=[*worlds.reads, late]))
    states = states_of(tables, worlds.spec)
    assert states.source(tables.snapshot(ACCESSES), later).since == since, "no state should have counted it"


def test_only_a_record_that_should_have_been_counted_rebuilds_a_state(tmp_path: Path) -> None:
    worlds = random_worlds(8, n_worlds=10)
    first, second = instants(worlds, 8, 9)
    tables = fill(Tables(str(tmp_path)), worlds, known_by_s=first)
    compute(tables, worlds, [first])
    states = states_of(tables, worlds.spec)
    fill(tables, worlds)
    assert states.source(tables.snapshot(ACCESSES), second).since == MomentKey.at(first, "r")
    too_late = dataclasses.replace(worlds.reads[0], at=worlds.start * US, known=worlds.start * US, n=77)
    fill(tables, dataclasses.replace(worlds, reads=[*worlds.reads, too_late]))
    assert states.source(tables.snapshot(ACCESSES), second).since is None


CHANGES: dict[str, Any] = {
    "did": "w0:new",
    "dataset": "w0:other",
    "tier": "w0:RAW",
    "campaign": None,
    "size": 77,
    "n": 5000,
    "user": "somebody",
    "task": "t3",
    "at": 1,
    "known": -1,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_counted_read_that_changes_in_place_rebuilds_a_state(tmp_path: Path, name: str) -> None:
    worlds = random_worlds(7, n_worlds=5)
    first, second = instants(worlds, 8, 9)
    tables = fill(Tables(str(tmp_path / "carried")), worlds, known_by_s=second)
    compute(tables, worlds, [first])
    counted = [k for k, r in enumerate(worlds.reads) if usable_s(r, worlds.spec.cycle_s) <= first]
    inside = [k for k in counted if worlds.reads[k].at % (worlds.spec.cycle_s * US) > US]
    reads, k = list(worlds.reads), inside[-1]
    before, change = getattr(reads[k], name), CHANGES[name]
    reads[k] = dataclasses.replace(reads[k], **{name: before + change if name in ("at", "known") else change})
    worlds = dataclasses.replace(worlds, reads=reads)
    fill(tables, worlds, known_by_s=second)
    assert states_of(tables, worlds.spec).source(tables.snapshot(ACCESSES), second).since is None
    compute(tables, worlds, [second])
    check_rebuilt(tables, worlds, second, STATES)


def test_a_counted_day_that_is_gone_rebuilds_a_state(tmp_path: Path) -> None:
    worlds = random_worlds(7, n_worlds=5)
    first, second = instants(worlds, 16, 17)
    tables = fill(Tables(str(tmp_path)), worlds, known_by_s=second)
    compute(tables, worlds, [first])
    accesses = tables.head(ACCESSES)
    left = tables.replace_each(ACCESSES, [], base=accesses, cover=[], drop=[min(accesses.partitions)])
    for now, since in ((accesses, MomentKey.at(first, "r")), (left, None)):
        assert states_of(tables, worlds.spec).source(now, second).since == since
    short = dataclasses.replace(worlds.spec, history_s=6 * worlds.spec.cycle_s)
    job.compute(RegionData(LOCAL, tables, short, "r"), [first])
    left = tables.replace_each(ACCESSES, [], base=left, cover=[], drop=[min(left.partitions)])
    assert states_of(tables, short).source(left, second).since is not None, "what is forgotten may go"


def test_a_close_that_completes_a_counted_open_leaves_the_state(tmp_path: Path) -> None:
    worlds = random_worlds(7, n_worlds=5)
    first, second = instants(worlds, 8, 9)
    tables = fill(Tables(str(tmp_path)), worlds)
    compute(tables, worlds, [first])
    closed = [dataclasses.replace(read, bytes=7) for read in worlds.reads]
    fill(tables, dataclasses.replace(worlds, reads=closed[::-1]))
    since = states_of(tables, worlds.spec).source(tables.snapshot(ACCESSES), second).since
    assert since == MomentKey.at(first, "r")


def test_a_state_of_an_older_form_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = random_worlds(7, n_worlds=5)
    first, second = instants(worlds, 8, 9)
    tables = fill(Tables(str(tmp_path)), worlds)
    with monkeypatch.context() as patch:
        patch.setattr("jobs.loop.train.states.STATE_FORM", 4)
        compute(tables, worlds, [first])
    consumed = tables.local_files(CONSUMED)
    assert consumed
    for file in consumed:  # as it was written then
        pq.write_table(pq.read_table(file, partitioning=None).drop_columns("content"), file)
    assert states_of(tables, worlds.spec).source(tables.snapshot(ACCESSES), second).since is None


def test_other_settings_rebuild_a_state_unless_it_does_not_depend_on_them(tmp_path: Path) -> None:
    worlds = random_worlds(8, n_worlds=3)
    first, second = instants(worlds, 8, 9)
    tables = fill(Tables(str(tmp_path)), worlds)
    compute(tables, worlds, [first])
    spec, accesses = worlds.spec, tables.snapshot(ACCESSES)
    of_first = MomentKey.at(first, "r")
    longer = dataclasses.replace(spec, history_s=spec.history_s + spec.cycle_s)
    others = dataclasses.replace(spec, unread_per_dataset=7, horizons_s=(9 * spec.cycle_s,))
    for states, since in (
        (dataclasses.replace(states_of(tables, spec), demand_sources={"*": "test"}), None),
        (states_of(tables, longer), None),
        (dataclasses.replace(states_of(tables, spec), region="elsewhere"), None),
        (states_of(tables, others), of_first),
    ):
        assert states.source(accesses, second).since == since


def remembered(tables: Tables, worlds: Worlds, as_of_s: int) -> dict[tuple[str, str], dict[str, Any]]:
    """A state by kind and entity: its own rows, else the newest dormant ones that are not forgotten."""
    awake = tables.read_arrow(STATES, as_of=as_of_label(as_of_s)).to_pylist()
    dormant = tables.read_arrow(DORMANT).to_pylist() if tables.exists(DORMANT) else []
    dormant = [row for row in dormant if parse_as_of(row["as_of"]) <= as_of_s]
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(dormant, key=lambda row: str(row["as_of"])) + awake:
        if row["last_read_s"] >= as_of_s - worlds.spec.history_s:
            numbers = {name: value for name, value in row.items() if name not in STATES.partition}
            newest[row["kind"], row["entity"]] = numbers
    return newest


@pytest.mark.parametrize("history_cycles", [12, 100])
def test_with_dormant_datasets_a_state_is_the_rebuilt_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history_cycles: int
) -> None:
    monkeypatch.setattr("jobs.loop.train.states.WORTH_A_STATE", -1.0)
    forgets = history_cycles < 100
    worlds = random_worlds(3, n_worlds=30, history_cycles=history_cycles, agreed=forgets)
    carried, woken, n_dormant = Tables(str(tmp_path / "carried")), set(), []
    slept: set[tuple[str, str]] = set()
    for as_of_s in instants(worlds, 4, 7, 10, 12, 13, 15, 18, 19, 24, 31):
        fill(carried, worlds, known_by_s=as_of_s)
        compute(carried, worlds, [as_of_s])
        known = remembered(carried, worlds, as_of_s)
        assert known == remembered(check_rebuilt(carried, worlds, as_of_s), worlds, as_of_s)
        awake = written(carried, STATES, as_of_s)
        awake_now = set(zip(awake["kind"], awake["entity"], strict=True))
        woken |= slept & awake_now
        slept = known.keys() - awake_now
        n_dormant.append(len(slept))
    assert woken or forgets
    assert max(n_dormant) > 10
    for as_of_s in instants(worlds, 2000, 2007):
        compute(carried, worlds, [as_of_s])
    parts = carried.head(DORMANT).partitions
    assert len(parts) <= 2 + len(carried.head(STATES).partitions)


def test_a_state_is_not_carried_on_with_dormant_datasets_of_another(tmp_path: Path) -> None:
    worlds = random_worlds(3, n_worlds=10)
    first, second, third = instants(worlds, 6, 13, 14)
    tables = fill(Tables(str(tmp_path)), worlds)
    for as_of_s in (first, second):
        compute(tables, worlds, [as_of_s])
    states, accesses = states_of(tables, worlds.spec), tables.snapshot(ACCESSES)
    since = MomentKey.at(second, "r")
    assert states.source(accesses, third).since == since
    moved = tables.read_arrow(DORMANT, as_of=since.as_of)
    assert moved.num_rows > 1
    tables.replace_arrow(DORMANT, moved[1:])
    assert states.source(accesses, third).since == MomentKey.at(first, "r")


def test_a_state_that_another_process_drops_meanwhile_is_carried_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = random_worlds(3, n_worlds=10)
    first, second, between, third, fourth = instants(worlds, 6, 13, 14, 19, 25)
    tables = fill(Tables(str(tmp_path / "both")), worlds)
    for as_of_s in (first, second):
        compute(tables, worlds, [as_of_s])
    write = LocalEngine.write_features

    def write_late(*words: Any, **options: Any) -> Any:
        """Write after two later states that another process has made in the meantime."""
        monkeypatch.undo()
        for as_of_s in (third, fourth):
            compute(tables, worlds, [as_of_s])
        assert MomentKey.at(second, "r") not in tables.head(STATES).partitions
        return write(*words, **options)

    monkeypatch.setattr(LocalEngine, "write_features", write_late)
    compute(tables, worlds, [between])
    for as_of_s in (between, fourth):
        check_rebuilt(tables, worlds, as_of_s)


class Killed(BaseException):
    """A process ends."""


@pytest.mark.parametrize("table", ["features", "states", "dormant", "consumed"])
def test_a_step_killed_before_it_writes_a_table_is_right_when_it_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    worlds = random_worlds(7, n_worlds=10)
    times = instants(worlds, 5, 6, 7)
    tables, sound = (Tables(str(tmp_path / name)) for name in ("killed", "sound"))
    for as_of_s in times:
        for into in (tables, sound):
            fill(into, worlds, known_by_s=as_of_s)
        if as_of_s == times[1]:
            with monkeypatch.context() as patch:
                patch.setattr(Tables, "commit", killed_at(table, Tables.commit))
                with pytest.raises(Killed):
                    compute(tables, worlds, [as_of_s])
        else:
            compute(tables, worlds, [as_of_s])
        compute(sound, worlds, [as_of_s])
    assert written(tables, STATES, times[2]) == written(sound, STATES, times[2])
    compute(tables, worlds, [times[1]])
    for as_of_s in times:
        features = written(tables, worlds.spec.features_table, as_of_s)
        assert features == written(sound, worlds.spec.features_table, as_of_s)


def killed_at(name: str, commit: Callable[..., Any]) -> Callable[..., Any]:
    """`commit`, which ends the process before it writes a table; consumed: when a state is concluded."""

    def killed(self: Tables, table: Table, files: Any, **options: Any) -> Any:
        staged = list(files)
        if table.name == name and (name != "consumed" or any(part.n_rows for part in staged)):
            raise Killed
        return commit(self, table, staged, **options)

    return killed
