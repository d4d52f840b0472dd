"""What faulty rows of Parquet and CSV become; and libCacheSim's binary formats, written here by field."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from features.common.errors import InputError, SchemaError
from replay.read import read_trace
from replay.trace import Trace

PLAIN = "time,id,size\n1,7,10\n2,8,20\n4,7,10\n"


@pytest.mark.parametrize(
    ("header", "columns", "match"),
    [
        ("time,lbn,size", {}, "which column is the item .none has.*item=NAME. It has time, lbn"),
        ("t,timestamp,id,size", {}, r"which column is the time \(one of t, timestamp\)"),
        ("time,id,size", {"item": "lbn"}, "no column lbn. It has time, id, size"),
        ("time,id,size", {"object": "id"}, "no role object; the roles are time, item, size, close, read"),
        ("time,id,size", {"item": "id", "dataset": "id"}, "column id is given two roles"),
        ("time,id,size", {"size": "", "user": ""}, "no column is the size; give --columns size=NAME"),
        ("at,lbn,size", {"size": "len"}, "no column len; which .* the time .*; which .* the item"),
    ],
)
def test_columns_that_cannot_be_told_are_asked_for(
    write: Callable[..., Path], header: Any, columns: Any, match: str
) -> None:
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
        (f"1,a,{2**61}\n2,a,{2**61}\n", "4.61e[+]18 bytes in total.*unit of its sizes"),
        (f"1,a,{2**63}\n", "t.csv row 1 has size 9.22.*, no whole number"),
        ("1700000000000000000,a,1\n1700000001000000000,a,1\n", "--time-unit"),
        ("1700000000000,a,1\n1800000000000,a,1\n", "--time-unit"),
    ],
)
def test_a_faulty_row_is_named(write: Callable[..., Path], rows: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        read_trace(write("time,id,size\n" + rows))


def test_a_text_that_is_cut_off_within_its_packing_is_refused(write: Callable[..., Path]) -> None:
    packed = gzip.compress(b"time,id,size\n" + b"1,a,2\n" * 50000)
    for n_bytes in (5, 30, len(packed) - 20):
        with pytest.raises(InputError, match=r"decompress|cannot be read|is empty|neither"):
            read_trace(write(packed[:n_bytes], "t.csv.gz"))


def test_the_first_size_counts_and_the_others_are_counted(write: Callable[..., Path]) -> None:
    loaded = read_trace(write("time,id,size\n1,a,5\n2,a,6\n3,b,7\n4,a,5\n"))
    assert loaded.trace.size_bytes.tolist() == [5, 7]
    assert loaded.notes == ("rows that state another size than their file's first, which counts: 1",)


def test_reads_and_closes_that_cannot_be_are_clipped_and_counted(write: Callable[..., Path]) -> None:
    path = write("time,id,size,end,got\n5,a,10,4,11\n6,a,10,9,3\n")
    loaded = read_trace(path, columns={"close": "end", "read": "got"})
    assert loaded.trace.close_s.tolist() == [5, 9]
    assert loaded.trace.read_bytes.tolist() == [10, 3]
    assert [note.rpartition(": ")[2] for note in loaded.notes[2:]] == ["1", "1"]
    assert loaded.notes[1].startswith("column got: 13 B were read of files of 20 B; files count whole")
    with pytest.raises(InputError, match="row 2 has got -3, below 0"):
        read_trace(write("time,id,size,got\n5,a,10,4\n6,a,10,-3\n"), columns={"read": "got"})


@pytest.mark.parametrize("per_second", [10**3, 10**6, 10**9])
def test_closes_in_another_unit_than_the_times_are_refused(
    write: Callable[..., Path], per_second: int
) -> None:
    """A file that never closes is never purged."""
    rows = f"1772323209,a,10,\n1772323200,a,10,{1772323205 * per_second}\n"
    with pytest.raises(InputError, match=rf"row 2 has close {1772323205 * per_second}, more than a year"):
        read_trace(write(f"time,id,size,close\n{rows}"), sort=True)
    never = f"{rows}1772323210,a,10,1772323211\n"
    assert read_trace(write(f"time,id,size,close\n{never}"), sort=True).trace.n_accesses == 3


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (pa.array([1.0, 2.5]), "row 2 has id 2.5, no whole number"),
        (pa.array([True, False]), "id is bool; files are integers or strings"),
    ],
)
def test_items_of_other_types_are_refused(write: Callable[..., Path], column: Any, match: str) -> None:
    with pytest.raises((SchemaError, InputError), match=match):
        read_trace(write(pa.table({"time": [1, 2], "id": column, "size": [1, 1]}), "t.parquet"))


def test_paths_that_hold_no_trace(write: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no trace"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is empty"):
        read_trace(write(""))
    with pytest.raises(InputError, match="holds no Parquet file"):
        read_trace(tmp_path)
    written = write(pa.table({"time": [1], "id": [1], "size": [1]}), "days/day=x/t.parquet")
    written.parent.rename(tmp_path / "days/day=\udcff")
    with pytest.raises(InputError, match=r"cannot be read as Parquet: .*surrogates"):
        read_trace(tmp_path / "days", keep=["day"])
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_trace(write(b"PAR1 and no more", "x.parquet"))
    with pytest.raises(InputError, match="neither Parquet, CSV nor LCS"):
        read_trace(write(bytes(range(256)), "x.bin"))
    with pytest.raises(InputError, match="no trace kind 'best'"):
        read_trace(write(PLAIN), kind="best")
    for unit in ("h", "%f", ".%f"):  # Arrow crashes at times of nothing but a fraction
        with pytest.raises(InputError, match=f"no time unit '{unit}'"):
            read_trace(write(PLAIN), time_unit=unit)


def test_a_kind_that_is_said_is_not_guessed(write: Callable[..., Path]) -> None:
    path = write(PLAIN, "like.oracleGeneral.csv")
    with pytest.raises(InputError, match="cut off within record"):
        read_trace(path)
    assert read_trace(path, kind="table").trace.n_accesses == 3


@pytest.mark.parametrize(("kind", "packing"), [("csv", "gzip"), ("oracleGeneral", "zstd")])
def test_a_packed_trace_that_unpacks_without_end_is_an_error(kind: str, packing: str, tmp_path: Path) -> None:
    path, row = tmp_path / f"trace.{kind}", b"1,a,1\n" if kind == "csv" else bytes(24)
    rows = row * (2**20 // len(row))
    with pa.CompressedOutputStream(str(path), packing) as stream:
        stream.write(b"time,obj,size\n" if kind == "csv" else b"")
        for _ in range(260):
            stream.write(rows)
    with pytest.raises(InputError, match="packed, and 200 times as long as it looks"):
        read_trace(path, kind="table" if kind == "csv" else kind)


MISSING = "time,id,size\n1,a,\n2,a,10\n3,b,\n4,c,30\n5,a,\n"


@pytest.mark.parametrize(
    ("rule", "read", "notes"),
    [
        ("drop", [(2, 10), (4, 30)], {"left out: 3"}),
        ("first", [(1, 10), (2, 10), (4, 30), (5, 10)], {"of their file: 2", "knows their file's size: 1"}),
        ("1kB", [(1, 10), (2, 10), (3, 1000), (4, 30), (5, 10)], {"of their file: 2", "taken as 1 kB: 1"}),
    ],
)
def test_sizes_that_are_missing_are_filled_or_dropped_and_counted(
    write: Callable[..., Path], rule: str, read: Any, notes: Any
) -> None:
    loaded = read_trace(write(MISSING), missing_size=rule)
    trace = loaded.trace
    assert list(zip(trace.time_s.tolist(), trace.size_bytes[trace.item].tolist(), strict=True)) == read
    assert {note for note in notes if any(line.endswith(note) for line in loaded.notes)} == notes


def test_missing_sizes_are_an_error_that_names_the_rule(write: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"row 1 has no size; .*--missing-size"):
        read_trace(write(MISSING))
    with pytest.raises(InputError, match="no rule for missing sizes: 'last'"):
        read_trace(write(MISSING), missing_size="last")
    with pytest.raises(InputError, match="no access has a file of known size"):
        read_trace(write("time,id,size\n1,a,\n"), missing_size="drop")


ROWS = [(5, 2**63 + 1, 3), (5, 7, 2**32 - 1), (9, 2**63 + 1, 3)]
MAGIC = 0x123456789ABCDEF0


def oracle(rows: list[tuple[int, int, int]] = ROWS) -> bytes:
    return b"".join(struct.pack("<IQIq", at, item, size, -1) for at, item, size in rows)


def lcs(
    rows: list[tuple[int, int, int]] = ROWS, version: int = 3, stated: int | None = None, tail: int = MAGIC
) -> bytes:
    words = [0] * 1024
    words[0], words[1], words[2], words[3], words[-1] = MAGIC, version, 1, stated or len(rows), tail
    body = b"".join(struct.pack("<IQqIIq", at, item, size, 2, 0, -1) for at, item, size in rows)
    return struct.pack("<1024Q", *words) + body


def check(trace: Trace, rows: list[tuple[int, int, int]] = ROWS) -> None:
    assert trace.time_s.tolist() == [at for at, _, _ in rows]
    assert [trace.names[i].as_py() for i in trace.item] == [str(item) for _, item, _ in rows]
    assert trace.size_bytes[trace.item].tolist() == [size for _, _, size in rows]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("t.oracleGeneral", bytes),
        ("t.oracleGeneral.bin.gz", gzip.compress),
        ("t.oracleGeneral.zst", lambda raw: pa.compress(raw, "zstd", asbytes=True)),
    ],
)
def test_oracle_general_is_known_by_its_name(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    (tmp_path / name).write_bytes(pack(oracle()))
    check(read_trace(tmp_path / name).trace)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lcs_is_known_by_its_magic_and_has_64_bit_sizes(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    rows = [*ROWS, (10, 8, 2**40)]
    (tmp_path / "x").write_bytes(pack(lcs(rows)))
    check(read_trace(tmp_path / "x").trace, rows)


@pytest.mark.parametrize(
    ("raw", "kind", "match"),
    [
        (oracle()[:-1], "oracleGeneral", r"cut off within record 3 \(23 of 24 bytes\)"),
        (lcs()[:-5], "lcs", r"cut off within record 3 \(31 of 36 bytes\)"),
        (lcs(stated=4), "lcs", "ends after record 3, but its header states 4"),
        (lcs()[:100], "lcs", "ends within the LCS header, before record 1"),
        (lcs(version=2), "lcs", "LCS version 2; convert it"),
        (lcs(tail=0), "lcs", "lacks the magic number"),
        (lcs([(1, 1, -5)]), "lcs", "row 1 has size -5"),
        (lcs([(2, 1, 5), (1, 1, 5)]), "lcs", "row 2 has time 1, earlier than 2"),
        (oracle([]), "oracleGeneral", "no row"),
        (gzip.compress(oracle(), mtime=0)[:-12], "oracleGeneral", "cannot be decompressed|cut off"),
        (b"\x1f\x8b\x08 damaged", "lcs", "cannot be decompressed"),
    ],
)
def test_faults_are_told_with_the_record(tmp_path: Path, raw: Any, kind: Any, match: str) -> None:
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(InputError, match=match):
        read_trace(tmp_path / "x", kind=kind)
