"""Tables and days that are not there, and sizes that reads do not state: errors, and where sizes are."""

import dataclasses
import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from access_rows import accesses
from table_rows import put_contents, put_files

from features import results, schema
from features.schema import ACCESSES, Table
from jobs.cli.main import COMMANDS
from jobs.ground.settings.tree import Settings
from jobs.ground.store import sizes
from jobs.ground.store.commits import Key, Partition, Snapshot
from jobs.ground.store.schema_check import WRITTEN_BY, days_there
from jobs.ground.store.tables import Tables
from jobs.loop.traces import from_tables


def days_in(*days: str) -> Snapshot:
    parts: dict[Key, Partition] = {(day,): Partition("p", 1, "d", ("f",)) for day in days}
    return Snapshot(ACCESSES, "/t", 1, "id", parts | {("2026-12-31",): Partition("p", 0, "d", ())})


def test_every_table_has_a_command_that_writes_it() -> None:
    spec = Settings.load(env={}).features.spec
    sample = dataclasses.replace(spec, sample_share=0.5)
    tables = [
        table for room in (schema, results) for table in vars(room).values() if isinstance(table, Table)
    ]
    tables += [spec.features_table, spec.labels_table, sample.features_table, sample.labels_table]
    assert {table.name for table in tables} == set(WRITTEN_BY)
    assert {command.split()[0] for command in WRITTEN_BY.values()} <= set(COMMANDS)


@pytest.mark.parametrize(
    ("days", "words"),
    [
        ([], "there is none on any day"),
        (["2026-03-01"], "there are accesses of 2026-03-01"),
        (["2026-03-01", "2026-02-28"], "there are accesses of 2026-02-28 to 2026-03-01"),
        (["2026-03-01", "2026-03-03"], "there are accesses of 2026-03-01, 2026-03-03"),
        (
            [f"2026-03-{day:02}" for day in range(1, 30, 2)],
            "there are accesses of 2026-03-01, 2026-03-03, 2026-03-05, further days until 2026-03-29",
        ),
    ],
)
def test_days_are_named_in_spans(days: list[str], words: str) -> None:
    assert days_there(days_in(*days)) == words


DAY = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
DAY_S = int(DAY.timestamp())


def read(name: str, *, source: str = "cms_tracer", size: int | None = None) -> dict[str, Any]:
    return {"name": name, "source": source, "size_bytes": size}


def reads(tables: Tables, *rows: dict[str, Any]) -> None:
    tables.replace_partition(ACCESSES, accesses(rows, accessed_at=DAY), ("2026-03-01",))


def by_name(tables: Tables) -> dict[str, int]:
    reads = from_tables(tables, since_s=DAY_S, until_s=DAY_S, demand_sources={"*": "cms_tracer"})
    names = reads.trace.names
    assert names is not None
    return dict(zip(names.to_pylist(), reads.trace.size_bytes.tolist(), strict=True))


def test_sizes_come_from_the_catalogue_then_other_records_then_the_caches(tables: Tables) -> None:
    reads(
        tables,
        *map(read, ("listed", "reported", "held", "unknown", "unknown")),
        read("reported", source="xcache_gstream", size=7),
        read("listed", source="xcache_gstream", size=8),
        read("strange", source="rucio_traces", size=9),
    )
    put_files(tables, [{"name": "listed", "size_bytes": 5}])
    put_contents(tables, "one", DAY_S - 3600, {"held": 1, "reported": 99})
    put_contents(tables, "one", DAY_S, {"held": 3, "listed": 99, "unread": 100})
    assert by_name(tables) == {"cms:listed": 5, "cms:reported": 7, "cms:held": 3}
    assert sizes.n_unknown(tables, "cms_tracer", ["2026-03-01"]) == 2
    assert sizes.n_unknown(tables, "cms_tracer", []) == 0


def test_a_size_is_the_catalogues_else_what_most_say_and_0_only_if_nothing_else_was_said(
    tables: Tables,
) -> None:
    put_files(tables, [{"name": "/a", "size_bytes": 7}])
    stated: dict[str, list[int | None]] = {"/a": [9, 9], "/b": [0, 5, 5, 100], "/c": [0, None], "/d": [3, 8]}
    stated |= {"/e": [None]}
    rows = [{"did": f"cms:{name}", "size_bytes": size} for name, of in stated.items() for size in of]
    dids = pa.array([f"cms:{name}" for name in stated])
    schema = pa.schema({"did": pa.string(), "size_bytes": pa.int64()})
    assert sizes.agreed(tables, dids, pa.Table.from_pylist(rows, schema)).tolist() == [7, 5, 0, 8, -1]
