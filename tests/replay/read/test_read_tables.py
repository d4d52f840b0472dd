"""Traces from Parquet and CSV: what is taken for what, and the rule for each kind of faulty row."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features.errors import InputError, SchemaError
from replay.read import read_trace

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
START_S = int(START.timestamp())
PLAIN = "time,id,size\n1,7,10\n2,8,20\n4,7,10\n"


@pytest.fixture
def write(tmp_path):
    """Write text or a table; the path."""

    def to(what, name="t.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, pa.Table):
            pq.write_table(what, path)
        elif isinstance(what, bytes):
            path.write_bytes(what)
        else:
            path.write_text(what)
        return path

    return to


def told(loaded):
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
def test_text_is_read_packed_or_not(write, name, pack):
    loaded = read_trace(write(pack(PLAIN.encode()), name))
    assert told(loaded) == ([1, 2, 4], ["7", "8", "7"], [10, 20])
    assert loaded.trace.item.tolist() == [0, 1, 0]
    assert (loaded.trace.close_s, loaded.trace.read_bytes, loaded.notes) == (None, None, ())


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters(write, delimiter):
    assert told(read_trace(write(PLAIN.replace(",", delimiter))))[0] == [1, 2, 4]


def test_a_parquet_file_of_any_types_is_the_same_trace(write):
    table = pa.table(
        {
            "ts": pa.array([1.9, 2.0, 4.1], pa.float32()),
            "object": pa.array(["7", "8", "7"], pa.large_string()),
            "BYTES": pa.array([10, 20, 10], pa.uint32()),
        }
    )
    assert told(read_trace(write(table, "t.parquet"))) == ([1, 2, 4], ["7", "8", "7"], [10, 20])


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("s", [1, 2, 4]),
        ("ms", [1999, 2000, 4001]),
        ("us", [10**6, 2 * 10**6, 4 * 10**6]),
        ("ns", [10**9] * 3),
    ],
)
def test_numbers_have_the_unit_that_is_said(write, unit, times):
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
def test_iso_strings_are_times(write, stated):
    path = write("time,id,size\n" + "".join(f"{at},a,1\n" for at in stated))
    assert (read_trace(path).trace.time_s - START_S).tolist() == [1, 2]
    table = pa.table({"time": stated, "id": ["a", "a"], "size": [1, 1]})
    assert (read_trace(write(table, "t.parquet")).trace.time_s - START_S).tolist() == [1, 2]


def test_days_and_timestamps_are_times(write):
    days = pa.table({"t": pa.array([20513, 20514], pa.date32()), "id": ["a", "a"], "size": [1, 1]})
    assert read_trace(write(days, "d.parquet")).trace.time_s.tolist() == [20513 * 86400, 20514 * 86400]
    at = pa.array([1_999_999_999, 2_000_000_000], pa.timestamp("ns"))
    assert read_trace(write(days.set_column(0, "t", at), "n.parquet")).trace.time_s.tolist() == [1, 2]


def test_hashes_beyond_int64_stay_apart(write):
    path = write(f"time,id,size\n1,{2**64 - 1},1\n2,{2**64 - 2},1\n")
    assert told(read_trace(path))[1] == [str(2**64 - 1), str(2**64 - 2)]


def test_columns_are_mapped_by_role(write):
    path = write("version,at,lbn,size,done,got\n1,1,a,10,5,4\n1,2,b,20,2,20\n")
    columns = {"time": "at", "item": "lbn", "close": "done", "read": "got"}
    trace = read_trace(path, columns=columns).trace
    assert trace.close_s.tolist() == [5, 2]
    assert trace.read_bytes.tolist() == [4, 20]


@pytest.mark.parametrize(
    ("header", "columns", "match"),
    [
        ("time,lbn,size", {}, "which column is the item.*none among time, lbn, size.*--columns item=NAME"),
        ("time,timestamp,id,size", {}, r"the time\?.*more than one \(time, timestamp\)"),
        ("time,id,size", {"item": "lbn"}, "no column lbn; it has time, id, size"),
        ("time,id,size", {"object": "id"}, "no role object; the roles are time, item, size, close, read"),
    ],
)
def test_columns_that_cannot_be_told_are_asked_for(write, header, columns, match):
    row = ",".join("1" for _ in header.split(","))
    with pytest.raises(SchemaError, match=match):
        read_trace(write(f"{header}\n{row}\n"), columns=columns)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ("1,a,1\n2,a,-5\n", "t.csv row 2 has size -5, below 0"),
        ("1,a,1\n2,a,\n", "t.csv row 2 has no size"),
        ("1,a,1\n2,a,1.5\n", "t.csv row 2 has size 1.5, no whole number"),
        ("1,a,1\n2,a,big\n", "t.csv row 2 has size 'big', no whole number"),
        ("1,a,1\n2,,1\n", "t.csv row 2 has no id"),
        ("1,3,1\n2,-4,1\n", "t.csv row 2 has id -4, below 0"),
        ("1,a,1\n,a,1\n", "t.csv row 2 has no time"),
        ("-1,a,1\n2,a,1\n", "t.csv row 1 has time -1, before 1970"),
        ("1,a,1\n2,a,1\nsoon,a,1\n", "t.csv row 3 has time 'soon'"),
        ("2026-03-01,a,1\n7,a,1\n", "t.csv row 2 has time '7'"),
        ("2026-03-01T00:00:01Z,a,1\n2026-03-01T00:00:02,a,1\n", "t.csv row 2 has time '2026-03-01T00:00:02'"),
        ("3,a,1\n2,a,1\n", "t.csv row 2 has time 2, earlier than 3 in the row before.*--sort"),
        ("1,a,1\n2,a\n", "t.csv cannot be read as CSV.*[Rr]ow #3"),
        ("", "t.csv has no row"),
        (f"1,a,{2**61}\n2,a,{2**61}\n", "4.61e[+]18 bytes in all.*unit of its sizes"),
        (f"1,a,{2**63}\n", "t.csv row 1 has size '9223372036854775808', no whole number"),
        ("1700000000000000000,a,1\n1700000001000000000,a,1\n", "--time-unit"),
        ("1700000000000,a,1\n1800000000000,a,1\n", "--time-unit"),
    ],
)
def test_a_faulty_row_is_named(write, rows, match):
    with pytest.raises(InputError, match=match):
        read_trace(write("time,id,size\n" + rows))


def test_a_text_that_is_cut_off_within_its_packing_is_refused(write):
    packed = gzip.compress(b"time,id,size\n" + b"1,a,2\n" * 50000)
    for n_bytes in (5, 30, len(packed) - 20):
        with pytest.raises(InputError, match=r"decompress|cannot be read|is empty|neither"):
            read_trace(write(packed[:n_bytes], "t.csv.gz"))


def test_the_file_of_a_folder_is_named(write, tmp_path):
    for day, time, size in (("2026-03-01", 1, 1), ("2026-03-02", 2, -1)):
        write(pa.table({"time": [time, 2], "id": [1, 2], "size": [1, size]}), f"in/day={day}/part.parquet")
    with pytest.raises(InputError, match=r"day=2026-03-02/part\.parquet row 2 has size -1"):
        read_trace(tmp_path / "in")


def test_sorting_is_stable(write):
    path = write("time,id,size\n3,a,1\n1,b,1\n3,c,1\n1,d,1\n")
    assert told(read_trace(path, sort=True))[:2] == ([1, 1, 3, 3], ["b", "d", "a", "c"])


def test_the_first_size_counts_and_the_others_are_counted(write):
    loaded = read_trace(write("time,id,size\n1,a,5\n2,a,6\n3,b,7\n4,a,5\n"))
    assert loaded.trace.size_bytes.tolist() == [5, 7]
    assert loaded.notes == ("rows that state another size than their file's first, which counts: 1",)


def test_reads_and_closes_that_cannot_be_are_clipped_and_counted(write):
    path = write("time,id,size,end,got\n5,a,10,4,11\n6,a,10,9,3\n")
    loaded = read_trace(path, columns={"close": "end", "read": "got"})
    assert loaded.trace.close_s.tolist() == [5, 9]
    assert loaded.trace.read_bytes.tolist() == [10, 3]
    assert [note.rpartition(": ")[2] for note in loaded.notes] == ["1", "1"]
    with pytest.raises(InputError, match="row 2 has got -3, below 0"):
        read_trace(write("time,id,size,got\n5,a,10,4\n6,a,10,-3\n"), columns={"read": "got"})


def test_files_of_no_bytes_are_files(write):
    assert read_trace(write("time,id,size\n1,a,0\n2,a,0\n")).trace.size_bytes.tolist() == [0]


def test_numbers_with_gaps_and_points_are_whole(write):
    assert read_trace(write("time,id,size\n1,a,5.0\n2,b,6.0\n")).trace.size_bytes.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (pa.array([1.0, 2.0]), "id is double; files are integers or strings"),
        (pa.array([True, False]), "id is bool"),
    ],
)
def test_items_of_other_types_are_refused(write, column, match):
    with pytest.raises(SchemaError, match=match):
        read_trace(write(pa.table({"time": [1, 2], "id": column, "size": [1, 1]}), "t.parquet"))


def house(n=4):
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


def test_an_accesses_table_is_known_and_sorted(write, tmp_path):
    expected = ([START_S + i for i in (1, 2, 3, 4)], ["x:1", "x:0", "x:1", "x:0"], [10, 11])
    assert told(read_trace(write(house(), "a.parquet"))) == expected
    write(house(), "out/accesses.parquet")
    files = pa.table({"did": ["x:9", "x:0"], "size_bytes": [5, 1]})
    write(files, "out/files.parquet")
    loaded = read_trace(tmp_path / "out")
    assert loaded.trace.n_items == 3
    assert loaded.trace.footprint_bytes == 21
    assert loaded.trace.names.to_pylist() == ["x:0", "x:1", "x:9"]
    write(house(), "two/accesses/day=2026-03-01/p.parquet")
    write(files, "two/files/p.parquet")
    assert told(read_trace(tmp_path / "two")) == (*expected[:2], [10, 11, 5])


def test_a_mapping_makes_an_accesses_table_foreign(write):
    path = write(house(), "a.parquet")
    with pytest.raises(InputError, match="earlier than"):
        read_trace(path, columns={"time": "accessed_at"})
    assert read_trace(path, kind="accesses").trace.n_accesses == 4
    with pytest.raises(SchemaError, match="no column accessed_at, did"):
        read_trace(write(PLAIN), kind="accesses")


def test_details_go_with_the_accesses_that_are_kept(write):
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
    assert read_trace(path, keep=keep, site="A").details["cpu_s"].to_pylist() == [2.0, 0.0]


def test_days_and_sites_are_chosen(write):
    path = write(house(), "a.parquet")
    loaded = read_trace(path, site="B", since_s=START_S + 2)
    assert told(loaded) == ([START_S + 3], ["x:1"], [11])
    with pytest.raises(InputError, match="its sites are A, B"):
        read_trace(path, site="C")
    with pytest.raises(InputError, match="no access in the time"):
        read_trace(path, since_s=START_S + 50)
    with pytest.raises(SchemaError, match="no column site"):
        read_trace(write(PLAIN), site="A")


def test_a_store_of_tables_is_not_read_past_its_commits(tmp_path):
    (tmp_path / "accesses" / "_commits").mkdir(parents=True)
    with pytest.raises(InputError, match="--tables"):
        read_trace(tmp_path)


def test_paths_that_hold_no_trace(write, tmp_path):
    with pytest.raises(InputError, match="there is no trace"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is empty"):
        read_trace(write(""))
    with pytest.raises(InputError, match="holds no Parquet file"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_trace(write(b"PAR1 and no more", "x.parquet"))
    with pytest.raises(InputError, match="neither Parquet, CSV nor LCS"):
        read_trace(write(bytes(range(256)), "x.bin"))
    with pytest.raises(InputError, match="no trace kind 'best'"):
        read_trace(write(PLAIN), kind="best")
    with pytest.raises(InputError, match="no time unit 'h'"):
        read_trace(write(PLAIN), time_unit="h")


def test_a_kind_that_is_said_is_not_guessed(write):
    path = write(PLAIN, "like.oracleGeneral.csv")
    with pytest.raises(InputError, match="cut off within record"):
        read_trace(path)
    assert read_trace(path, kind="table").trace.n_accesses == 3


def test_many_row_groups_and_repeated_names_are_one_trace(tmp_path):
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 50, 1000)
    for kind, name in ((ids, "ints"), ([f"file{i}" for i in ids], "strings")):
        table = pa.table({"time": np.arange(1000), "id": kind, "size": ids + 1})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=64)
        trace = read_trace(tmp_path / f"{name}.parquet").trace
        assert [trace.names[i].as_py() for i in trace.item] == [str(k) for k in kind]
        assert (trace.size_bytes[trace.item] == ids + 1).all()
