"""Columns as Oracle, Hive, Kibana and log4j write them: decimals, bytes, fractions, local times, marks."""

import datetime as dt
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from features.common.errors import InputError
from replay.read import read_trace

ROWS: dict[str, list[Any]] = {"time": [1, 2, 3], "item": ["a", "b", "a"], "size": [10, 20, 10]}


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


NUMBERS = [
    pa.decimal128(38, 0),
    pa.decimal128(20, 2),
    pa.decimal256(60, 0),
    pa.decimal32(9, 0),
    *(pa.int8(), pa.uint8(), pa.int16(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
]
TEXTS = [pa.binary(), pa.large_binary(), pa.binary(1), pa.large_string(), pa.string_view(), pa.binary_view()]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("name", ["size", "time"])
def test_whole_numbers_of_every_type(write: Callable[..., Path], kind: pa.DataType, name: str) -> None:
    values = [Decimal(value) for value in ROWS[name]] if pa.types.is_decimal(kind) else ROWS[name]
    trace = read_trace(write(pa.table(ROWS | {name: column(values, kind)}), "t.parquet")).trace
    assert trace.time_s.tolist() == ROWS["time"]
    assert trace.size_bytes[trace.item].tolist() == ROWS["size"]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_names_of_every_type(write: Callable[..., Path], kind: pa.DataType) -> None:
    values = [value.encode() if "binary" in str(kind) else value for value in ROWS["item"]]
    trace = read_trace(write(pa.table(ROWS | {"item": column(values, kind)}), "t.parquet")).trace
    assert [trace.names[i].as_py() for i in trace.item] == ROWS["item"]


@pytest.mark.parametrize("kind", [pa.decimal128(38, 0), pa.float64(), pa.int64()], ids=str)
def test_numbers_as_names(write: Callable[..., Path], kind: pa.DataType) -> None:
    values = [Decimal(i) if pa.types.is_decimal(kind) else i for i in (12, 7, 12)]
    trace = read_trace(write(pa.table(ROWS | {"item": column(values, kind)}), "t.parquet")).trace
    assert [trace.names[i].as_py() for i in trace.item] == ["12", "7", "12"]


def test_hive_s_files_with_text_alone(write: Callable[..., Path]) -> None:
    table = pa.table({name: [str(value).encode() for value in values] for name, values in ROWS.items()})
    trace = read_trace(write(table, "t.parquet")).trace
    assert (trace.time_s.tolist(), trace.size_bytes.tolist()) == ([1, 2, 3], [10, 20])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"item": column([b"a", b"\xff\xfe", b"a"], pa.binary())}, "item has bytes that are not UTF-8"),
        ({"size": column([Decimal("1.5")] * 3, pa.decimal128(9, 1))}, "row 1 has size 1.5, no whole number"),
        ({"size": ["8.0", "x", "1e3"]}, "row 2 has size 'x', no whole number"),
        ({"size": [1.0, float("nan"), 2.0]}, "row 2 has size nan, no whole number"),
        ({"item": column([Decimal("1.5")] * 3, pa.decimal128(9, 1))}, "row 1 has item 1.5, no whole number"),
    ],
)
def test_what_they_are_not_is_named(write: Callable[..., Path], changes: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_trace(write(pa.table(ROWS | changes), "t.parquet"))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_every_unit(write: Callable[..., Path], unit: str, zone: str | None) -> None:
    moments = [dt.datetime(2026, 3, 1, 0, 0, s, tzinfo=dt.UTC if zone else None) for s in (1, 2, 3)]
    table = pa.table(ROWS | {"time": pa.array(moments, pa.timestamp(unit, tz=zone))})
    assert read_trace(write(table, "t.parquet")).trace.time_s.tolist() == [1772323201, 1772323202, 1772323203]


FORMS = [
    (
        "%Y-%m-%d %H:%M:%S,%f",
        ["2026-03-01 04:00:00,123", "2026-03-01 04:00:00,1234567", "2026-03-01 04:00:01,4"],
    ),
    (
        "%Y-%m-%d %H:%M:%S.%f",
        ["2026-03-01 04:00:00,1", "2026-03-01 04:00:00.123456789", "2026-03-01 04:00:01.0"],
    ),
    ("%b %d, %Y @ %H:%M:%S.%f", [f"Mar 1, 2026 @ 04:00:0{s}.000" for s in (0, 0, 1)]),
    ("%H:%M:%S.%f %d.%m.%Y", [f"04:00:0{s}.5 01.03.2026" for s in (0, 0, 1)]),
    ("%Y%m%d%H%M%S%f", [f"202603010400{s}250" for s in ("00", "00", "01")]),
    ("%Y-%m-%dT%H:%M:%S.%f%z", [f"2026-03-01T05:00:0{s}.5+0100" for s in (0, 0, 1)]),
    ("%Y-%m-%dT%H:%M:%S.%fZ", [f"2026-03-01T04:00:0{s}.5Z" for s in (0, 0, 1)]),
    ("s", ["2026-03-01 04:00:00,123", "2026-03-01 04:00:00,1234567", "2026-03-01 04:00:01,4"]),
]


@pytest.mark.parametrize(("form", "times"), FORMS, ids=[form for form, _ in FORMS])
def test_fractions_of_a_second(write: Callable[..., Path], form: str, times: list[str]) -> None:
    text = "time,item,size\n" + "".join(f'"{time}",{i},10\n' for i, time in enumerate(times))
    trace = read_trace(write(text), time_unit=form).trace
    assert trace.time_s.tolist() == [1772337600, 1772337600, 1772337601]


def test_fractions_are_kept_where_they_order_rows(write: Callable[..., Path]) -> None:
    text = 'time,item,size\n"2026-03-01 04:00:00,5",a,1\n"2026-03-01 04:00:00,05",b,1\n'
    with pytest.raises(InputError, match=r"row 2 has time .*, earlier than"):
        read_trace(write(text), time_unit="%Y-%m-%d %H:%M:%S,%f")
    trace = read_trace(write(text), time_unit="%Y-%m-%d %H:%M:%S,%f", sort=True).trace
    assert [trace.names[i].as_py() for i in trace.item] == ["b", "a"]


@pytest.mark.parametrize(
    "odd", ["2026-03-01 04:00:00", "2026-03-01 04:00:00,", "2026-03-01 04:00:00,1234567890"]
)
def test_a_text_without_the_fraction_is_named(write: Callable[..., Path], odd: str) -> None:
    text = f'time,item,size\n"2026-03-01 04:00:00,5",a,1\n"{odd}",b,1\n'
    with pytest.raises(InputError, match=r"row 2 has time '2026-03-01 04:00:00.*', which is not like"):
        read_trace(write(text), time_unit="%Y-%m-%d %H:%M:%S,%f")


def test_marks_before_a_text(write: Callable[..., Path]) -> None:
    assert read_trace(write(b"\xef\xbb\xbftime,item,size\n1,a,1\n")).trace.time_s.tolist() == [1]
    with pytest.raises(InputError, match="is text in UTF-16; write it as UTF-8"):
        read_trace(write("time,item,size\n1,a,1\n".encode("utf-16")))
    with pytest.raises(InputError, match="is empty"):
        read_trace(write(b"\xef\xbb\xbf"))


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def csv(times: list[str]) -> str:
    return "time,id,size\n" + "".join(f"{at},a,1\n" for at in times)


@pytest.mark.parametrize(
    ("form", "unit"),
    [
        ("%Y-%m-%d %H:%M:%S", "s"),
        ("%Y-%m-%dT%H:%M:%S.250", "s"),
        ("%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S"),
        ("%d.%m.%Y %H:%M:%S.5", "%d.%m.%Y %H:%M:%S.%f"),
    ],
)
def test_local_times_are_those_of_the_zone(write: Callable[..., Path], form: str, unit: str) -> None:
    known = [dt.datetime(2026, month, 3, 12, 30, 5, tzinfo=BERLIN) for month in (1, 3, 7, 11)]
    path = write(csv([at.strftime(form) for at in known]))
    loaded = read_trace(path, time_unit=unit, time_zone="Europe/Berlin")
    assert loaded.trace.time_s.tolist() == [int(at.timestamp()) for at in known]
    assert loaded.notes == ()
    assert any("no zone, taken as UTC" in note for note in read_trace(path, time_unit=unit).notes)


def test_days_and_plain_timestamps_are_local_others_are_not(write: Callable[..., Path]) -> None:
    midnight = dt.datetime(2026, 7, 1, tzinfo=BERLIN)
    table = pa.table(
        {"time": [midnight.date()], "close": [dt.datetime(2026, 7, 1, 1)], "id": ["a"], "size": [1]}
    )
    trace = read_trace(write(table, "d.parquet"), time_zone="Europe/Berlin").trace
    assert trace.close_s is not None
    assert (trace.time_s[0], trace.close_s[0] - trace.time_s[0]) == (midnight.timestamp(), 3600)
    for stated in ("2026-07-01T00:00:00+02:00", "1782856800"):
        again = read_trace(write(csv([stated])), time_zone="Europe/Berlin")
        assert (again.trace.time_s[0], again.notes) == (midnight.timestamp(), ())


def test_the_hour_that_comes_twice_is_told_by_the_step_back(write: Callable[..., Path]) -> None:
    start_s = int(dt.datetime(2026, 10, 24, 23, 30, tzinfo=dt.UTC).timestamp())
    known = [start_s + 1200 * k for k in range(10)]
    texts = [dt.datetime.fromtimestamp(at, BERLIN).strftime("%Y-%m-%d %H:%M:%S") for at in known]
    loaded = read_trace(write(csv(texts)), time_zone="Europe/Berlin")
    assert loaded.trace.time_s.tolist() == known
    assert any("shows twice" in note and note.endswith(": 6") for note in loaded.notes)


@pytest.mark.parametrize(
    ("times", "zone", "words"),
    [
        (["2026-03-29 02:30:00"], "Europe/Berlin", "row 1 has time '2026-03-29 02:30:00', which no clock"),
        (["2026-07-01 02:30:00"], "Europe/Munich", "no time zone 'Europe/Munich'"),
        (["2026-07-01 02:30:00"], "", "no time zone ''"),
        (
            ["2026-07-01 02:30:00", "2026-07-01 01:00:00"],
            None,
            "row 2 has time '2026-07-01 01:00:00', earlier than '2026-07-01 02:30:00' in the row",
        ),
        (["5", "4"], None, "row 2 has time 4, earlier than 5 in the row"),
        (["1960-07-01 02:30:00"], None, "row 1 has time '1960-07-01 02:30:00', before 1970"),
    ],
)
def test_messages_show_the_cell(write: Callable[..., Path], times: Any, zone: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_trace(write(csv(times)), time_zone=zone)
