"""Traces from tables of accesses: known by their columns, sorted, and chosen by day and site."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from features.common.errors import InputError, SchemaError
from replay.read import LoadedTrace, read_trace

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
START_S = int(START.timestamp())
PLAIN = "time,id,size\n1,7,10\n2,8,20\n4,7,10\n"


def told(loaded: LoadedTrace) -> tuple[list[int], list[str], list[int]]:
    trace = loaded.trace
    return trace.time_s.tolist(), [trace.names[i].as_py() for i in trace.item], trace.size_bytes.tolist()


def house(n: int = 4) -> pa.Table:
    at = [START + dt.timedelta(seconds=n - i) for i in range(n)]
    return pa.table(
        {
            "accessed_at": pa.array(at, pa.timestamp("us", tz="UTC")),
            "did": [f"x:{i % 2}" for i in range(n)],
            "size_bytes": [10 + i % 2 for i in range(n)],
            "site": ["A", "B"] * (n // 2),
            "category": pa.array(["one", None] * (n // 2)),
            "cpu_s": [float(i) for i in range(n)],
        }
    )


def test_an_accesses_table_is_known_and_sorted(write: Callable[..., Path], tmp_path: Path) -> None:
    expected = ([START_S + i for i in (1, 2, 3, 4)], ["x:1", "x:0", "x:1", "x:0"], [10, 11])
    assert told(read_trace(write(house(), "a.parquet"))) == expected
    write(house(), "out/accesses.parquet")
    files = pa.table({"did": ["x:9", "x:0"], "size_bytes": [5, 1]})
    write(files, "out/files.parquet")
    loaded = read_trace(tmp_path / "out")
    assert loaded.trace.n_items == 3
    assert loaded.trace.footprint_bytes == 12
    assert loaded.trace.names.to_pylist() == ["x:0", "x:1", "x:9"]
    write(house(), "two/accesses/day=2026-03-01/p.parquet")
    write(files, "two/files/p.parquet")
    assert told(read_trace(tmp_path / "two")) == (*expected[:2], [1, 11, 5])


def test_a_mapping_makes_an_accesses_table_foreign(write: Callable[..., Path]) -> None:
    path = write(house(), "a.parquet")
    with pytest.raises(InputError, match="earlier than"):
        read_trace(path, columns={"time": "accessed_at"})
    assert read_trace(path, kind="accesses").trace.n_accesses == 4
    with pytest.raises(SchemaError, match="no column accessed_at, did"):
        read_trace(write(PLAIN), kind="accesses")


def test_details_go_with_the_accesses_that_are_kept(write: Callable[..., Path]) -> None:
    path = write(house(), "a.parquet")
    keep = ("category", "cpu_s", "tier", "site")
    loaded = read_trace(path, keep=keep, until_s=START_S + 4)
    assert loaded.details.column_names == ["category", "cpu_s", "site"]
    assert loaded.details.to_pydict() == {
        "category": [None, "one", None],
        "cpu_s": [3.0, 2.0, 1.0],
        "site": ["B", "A", "B"],
    }
    assert pa.types.is_dictionary(loaded.details.schema.field("category").type)
    assert read_trace(path, keep=keep, only={"site": "A"}).details["cpu_s"].to_pylist() == [2.0, 0.0]


def test_days_and_sites_are_chosen(write: Callable[..., Path]) -> None:
    path = write(house(), "a.parquet")
    loaded = read_trace(path, only={"site": "B"}, since_s=START_S + 2)
    assert told(loaded) == ([START_S + 3], ["x:1"], [11])
    with pytest.raises(InputError, match="its sites are A, B"):
        read_trace(path, only={"site": "C"})
    with pytest.raises(InputError, match="no access in the time"):
        read_trace(path, since_s=START_S + 50)
    with pytest.raises(SchemaError, match="no column site"):
        read_trace(write(PLAIN), only={"site": "A"})


def test_an_activity_is_chosen_alone_or_within_a_site(write: Callable[..., Path]) -> None:
    table = house().append_column("activity", pa.array(["analysis", None, "production", "analysis"]))
    path = write(table, "a.parquet")
    sites = {
        activity: read_trace(path, only={"activity": activity}, keep=("site",)).details["site"].to_pylist()
        for activity in ("analysis", "production")
    }
    expected = table.sort_by("accessed_at")
    for activity, found in sites.items():
        assert found == expected.filter(pc.equal(expected["activity"], activity))["site"].to_pylist()
    both = read_trace(path, only={"activity": "analysis", "site": sites["analysis"][0]})
    assert both.trace.n_accesses == sites["analysis"].count(sites["analysis"][0])
    with pytest.raises(InputError, match="its activities are analysis, production"):
        read_trace(path, only={"activity": "play"})
    with pytest.raises(SchemaError, match="no column activity"):
        read_trace(write(house(), "b.parquet"), only={"activity": "analysis"})


def test_a_store_of_tables_is_not_read_past_its_commits(tmp_path: Path) -> None:
    (tmp_path / "accesses" / "_commits").mkdir(parents=True)
    with pytest.raises(InputError, match="--tables"):
        read_trace(tmp_path)
