"""Sizes of files whose reads state none."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from features.schema import ACCESSES, CONTENTS, FILES, arrow_schema
from jobs.ground.store import sizes
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.traces import from_tables

DAY = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
DAY_S = int(DAY.timestamp())


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path / "tables"))


def read(name: str, number: int, *, source: str = "cms_tracer", size: int | None = None) -> dict[str, Any]:
    return {
        "did": f"cms:{name}",
        "scope": "cms",
        "name": name,
        "accessed_at": DAY,
        "known_at": DAY,
        "n_reads": 1,
        "source": source,
        "size_bytes": size,
        "event_id": f"{source}{number}",
        "day": "2026-03-01",
    }


def reads(tables: Tables, *rows: dict[str, Any]) -> None:
    schema = arrow_schema(ACCESSES).append(pa.field("day", pa.string()))
    tables.replace_partition(ACCESSES, pa.Table.from_pylist(list(rows), schema), ("2026-03-01",))


def listed(tables: Tables, name: str, size: int) -> None:
    row = {"did": f"cms:{name}", "scope": "cms", "name": name, "size_bytes": size, "known_at": DAY}
    tables.replace_rows(FILES, [row], ())


def held(tables: Tables, cache: str, at_s: int, **files: int) -> None:
    rows = [
        {
            "did": f"cms:{name}",
            "name": name,
            "size_bytes": size,
            "bytes_on_disk": size,
            "complete": True,
            "open": False,
            "scanned_at": DAY,
        }
        for name, size in files.items()
    ]
    tables.replace_rows(CONTENTS, rows, MomentKey.at(at_s, cache))


def by_name(tables: Tables) -> dict[str, int]:
    found = from_tables(tables, since_s=DAY_S, until_s=DAY_S, demand_sources={"*": "cms_tracer"})
    names = found.trace.names
    assert names is not None
    return dict(zip(names.to_pylist(), found.trace.size_bytes.tolist(), strict=True))


def test_sizes_come_from_the_catalogue_then_other_records_then_the_caches(tables: Tables) -> None:
    reads(
        tables,
        *(read(name, number) for number, name in enumerate(["listed", "told", "held", "unknown", "unknown"])),
        read("told", 9, source="xcache_gstream", size=7),
        read("listed", 10, source="xcache_gstream", size=8),
        read("strange", 11, source="rucio_traces", size=9),
    )
    listed(tables, "listed", 5)
    held(tables, "one", DAY_S - 3600, held=1, told=99)
    held(tables, "one", DAY_S, held=3, listed=99, unread=100)
    assert by_name(tables) == {"cms:listed": 5, "cms:told": 7, "cms:held": 3}
    assert sizes.n_unknown(tables, "cms_tracer", ["2026-03-01"]) == 2
    assert sizes.n_unknown(tables, "cms_tracer", []) == 0


def test_a_size_that_the_reads_state_needs_no_other(tables: Tables) -> None:
    reads(tables, read("told", 1, size=4), read("told", 2))
    held(tables, "one", DAY_S, told=99)
    assert by_name(tables) == {"cms:told": 4}
    assert sizes.n_unknown(tables, "cms_tracer", ["2026-03-01"]) == 0


def test_nothing_is_known_of_no_file(tables: Tables) -> None:
    reads(tables, read("unknown", 1))
    assert sizes.n_unknown(tables, "cms_tracer", ["2026-03-01"]) == 1


def test_a_size_is_the_catalogues_else_what_most_say_and_0_only_if_nothing_else_was_said(
    tables: Tables,
) -> None:
    listed = {"did": "cms:/a", "scope": "cms", "name": "/a", "size_bytes": 7, "known_at": DAY}
    tables.replace_arrow(FILES, pa.Table.from_pylist([listed], schema=arrow_schema(FILES)))
    told: dict[str, list[int | None]] = {
        "/a": [9, 9],
        "/b": [0, 5, 5, 100],
        "/c": [0, None],
        "/d": [3, 8],
        "/e": [None],
    }
    rows = [{"did": f"cms:{name}", "size_bytes": size} for name, stated in told.items() for size in stated]
    dids = pa.array([f"cms:{name}" for name in told])
    schema = pa.schema({"did": pa.string(), "size_bytes": pa.int64()})
    assert sizes.agreed(tables, dids, pa.Table.from_pylist(rows, schema)).tolist() == [7, 5, 0, 8, -1]
