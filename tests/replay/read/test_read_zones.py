"""Times on a clock of the wall: hours that it shows twice, or never; messages with what the cell says."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from features.common.errors import InputError
from replay.read import read_trace

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
    shown = [dt.datetime.fromtimestamp(at, BERLIN).strftime("%Y-%m-%d %H:%M:%S") for at in known]
    loaded = read_trace(write(csv(shown)), time_zone="Europe/Berlin")
    assert loaded.trace.time_s.tolist() == known
    assert any("shows twice" in note and note.endswith(": 6") for note in loaded.notes)


def test_without_a_step_back_it_is_the_first(write: Callable[..., Path]) -> None:
    loaded = read_trace(write(csv(["2026-10-25 02:10:00", "2026-10-25 03:00:00"])), time_zone="Europe/Berlin")
    assert loaded.trace.time_s.tolist() == [1792887000, 1792893600]
    assert any("shows twice" in note and note.endswith(": 1") for note in loaded.notes)


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
