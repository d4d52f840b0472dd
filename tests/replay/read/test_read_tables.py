"""Traces from Parquet, CSV and tables of accesses: what is taken for what, sorted, chosen by day and site."""

import bz2
import datetime as dt
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from features.common.errors import InputError, SchemaError
from replay.read import LoadedTrace, read_trace

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
START_S = int(START.timestamp())
PLAIN = "time,id,size\n1,7,10\n2,8,20\n4,7,10\n"


def contents(loaded: LoadedTrace) -> tuple[list[int], list[str], list[int]]:
    trace = loaded.trace
    return trace.time_s.tolist(), [trace.names[i].as_py() for i in trace.item], trace.size_bytes.tolist()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("t.csv", bytes),
        ("t.csv.gz", gzip.compress),
        ("t.csv.bz2", bz2.compress),
        ("t.csv.zst", lambda raw: pa.compress(raw, "zstd", asbytes=True)),
        ("no-ending", gzip.compress),
    ],
)
def test_text_is_read_packed_or_not(
    write: Callable[..., Path], name: str, pack: Callable[[bytes], bytes]
) -> None:
    loaded = read_trace(write(pack(PLAIN.encode()), name))
    assert contents(loaded) == ([1, 2, 4], ["7", "8", "7"], [10, 20])
    assert loaded.trace.item.tolist() == [0, 1, 0]
    assert (loaded.trace.close_s, loaded.trace.read_bytes, loaded.notes) == (None, None, ())


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("s", [1, 2, 4]),
        ("ms", [1999, 2000, 4001]),
        ("us", [10**6, 2 * 10**6, 4 * 10**6]),
        ("ns", [10**9] * 3),
    ],
)
def test_numbers_have_the_unit_that_is_said(write: Callable[..., Path], unit: Any, times: Any) -> None:
    table = pa.table({"time": times, "id": [7, 8, 7], "size": [10, 20, 10]})
    expected = [1, 1, 1] if unit == "ns" else [1, 2, 4]
    assert read_trace(write(table, "t.parquet"), time_unit=unit).trace.time_s.tolist() == expected


@pytest.mark.parametrize(
    "stated",
    [
        ["2026-03-01T00:00:01Z", "2026-03-01T00:00:02Z"],
        ["2026-03-01 00:00:01", "2026-03-01 00:00:02.5"],
        ["2026-03-01T01:00:01+01:00", "2026-03-01T01:00:02+01:00"],
    ],
)
def test_iso_strings_are_times(write: Callable[..., Path], stated: Any) -> None:
    path = write("time,id,size\n" + "".join(f"{at},a,1\n" for at in stated))
    assert (read_trace(path).trace.time_s - START_S).tolist() == [1, 2]
    table = pa.table({"time": stated, "id": ["a", "a"], "size": [1, 1]})
    assert (read_trace(write(table, "t.parquet")).trace.time_s - START_S).tolist() == [1, 2]


def test_times_may_be_written_in_a_format(write: Callable[..., Path]) -> None:
    path = write("when,id,size\n01/03/2026 00:00:07,a,1\n02/03/2026 00:00:00,a,1\n")
    times = read_trace(path, columns={"time": "when"}, time_unit="%d/%m/%Y %H:%M:%S").trace.time_s
    assert times.tolist() == [1772323207, 1772409600]
    with pytest.raises(InputError, match="row 1 has when '01/03/2026 00:00:07', which is not like '%Y-%m'"):
        read_trace(path, columns={"time": "when"}, time_unit="%Y-%m")


def test_hashes_beyond_int64_stay_apart(write: Callable[..., Path]) -> None:
    path = write(f"time,id,size\n1,{2**64 - 1},1\n2,{2**64 - 2},1\n")
    assert contents(read_trace(path))[1] == [str(2**64 - 1), str(2**64 - 2)]


def test_numbers_with_leading_zeros_stay_as_they_are(write: Callable[..., Path]) -> None:
    loaded = read_trace(write("time,id,size,dataset\n01,007,10,000123\n02,7,20,123\n"), keep=("dataset",))
    assert contents(loaded)[1:] == (["007", "7"], [10, 20])
    assert loaded.details["dataset"].to_pylist() == ["000123", "123"]
    assert loaded.trace.time_s.tolist() == [1, 2]


@pytest.mark.parametrize(
    "column", ["1.10,1.1", "1e3,1000.0", "true,True", "2026-03-01 00:00,2026-03-01T00:00:00"]
)
def test_names_keep_their_text_whatever_they_look_like(write: Callable[..., Path], column: str) -> None:
    names = column.split(",")
    rows = "".join(f"{n}.0,{name},10,{name},{name}\n" for n, name in enumerate(names, 1))
    loaded = read_trace(write(f"time,id,size,dataset,version\n{rows}"), keep=("dataset", "version"))
    assert loaded.trace.n_items == 2
    for role in ("dataset", "version"):
        assert loaded.details[role].to_pylist() == names
    assert loaded.trace.time_s.tolist() == [1, 2]


def test_columns_are_mapped_by_role(write: Callable[..., Path]) -> None:
    path = write("version,at,lbn,size,done,got\n1,1,a,10,5,4\n1,2,b,20,2,20\n")
    columns = {"time": "at", "item": "lbn", "close": "done", "read": "got"}
    trace = read_trace(path, columns=columns).trace
    assert trace.close_s.tolist() == [5, 2]
    assert trace.read_bytes.tolist() == [4, 20]


@pytest.mark.parametrize(
    "header",
    ["timestamp,path,filesize,ip", "date,lfn,bytes,user", "time,filename,size,client", "ts,file,size,user"],
)
def test_usual_names_are_known_and_told(write: Callable[..., Path], header: str) -> None:
    loaded = read_trace(write(f"{header},op\n1,a,10,x,r\n2,b,20,y,r\n"), keep=("user",))
    assert contents(loaded)[1:] == (["a", "b"], [10, 20])
    assert loaded.details["user"].to_pylist() == ["x", "y"]
    (note,) = loaded.notes
    assert note.startswith("columns by role: time") and note.endswith("; no role: op")
    assert all(name in note for name in header.split(","))


def test_files_of_one_name_in_two_datasets_are_two(write: Callable[..., Path]) -> None:
    rows = "1,a,A,10\n2,a,B,20\n3,b,A,5\n4,a,,10\n5,a,B,20\n6,b,,5\n"
    path = write(f"time,path,dataset,size\n{rows}")
    loaded = read_trace(path)
    assert contents(loaded)[1:] == (["A/a", "B/a", "b", "A/a", "B/a", "b"], [10, 5, 20])
    assert loaded.notes[1:] == ("names that several datasets have, a file in each of them: 1",)
    numbered = write(f"time,id,dataset,size\n{rows.replace('a', '7').replace('b', '8')}", "n.csv")
    assert contents(read_trace(numbered))[1][:3] == ["A/7", "B/7", "8"]
    (_, merged) = read_trace(path, columns={"dataset": ""}).notes
    assert merged.startswith("rows that state another size")


def test_sorting_is_stable(write: Callable[..., Path]) -> None:
    path = write("time,id,size\n3,a,1\n1,b,1\n3,c,1\n1,d,1\n")
    assert contents(read_trace(path, sort=True))[:2] == ([1, 1, 3, 3], ["b", "d", "a", "c"])


def test_many_row_groups_and_repeated_names_are_one_trace(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 50, 1000)
    for kind, name in ((ids, "ints"), ([f"file{i}" for i in ids], "strings")):
        table = pa.table({"time": np.arange(1000), "id": kind, "size": ids + 1})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=64)
        trace = read_trace(tmp_path / f"{name}.parquet").trace
        assert [trace.names[i].as_py() for i in trace.item] == [str(k) for k in kind]
        assert (trace.size_bytes[trace.item] == ids + 1).all()


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
    assert contents(read_trace(write(house(), "a.parquet"))) == expected
    write(house(), "out/accesses.parquet")
    files = pa.table({"did": ["x:9", "x:0"], "size_bytes": [5, 1]})
    write(files, "out/files.parquet")
    loaded = read_trace(tmp_path / "out")
    assert loaded.trace.n_items == 3
    assert loaded.trace.footprint_bytes == 12
    assert loaded.trace.names.to_pylist() == ["x:0", "x:1", "x:9"]
    write(house(), "two/accesses/day=2026-03-01/p.parquet")
    write(files, "two/files/p.parquet")
    assert contents(read_trace(tmp_path / "two")) == (*expected[:2], [1, 11, 5])


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
    assert contents(loaded) == ([START_S + 3], ["x:1"], [11])
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
    for activity, of_activity in sites.items():
        assert of_activity == expected.filter(pc.equal(expected["activity"], activity))["site"].to_pylist()
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
