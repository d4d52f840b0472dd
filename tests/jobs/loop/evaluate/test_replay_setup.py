"""Accesses that cannot be evaluated: days that leave nothing, impossible times, damaged files."""

import contextlib
import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from access_rows import accesses

from features.common.errors import CachecastError, InputError, SchemaError, StaleInputError
from features.common.times import parse_day
from features.schema import ACCESSES
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.replay_setup import Request, copy_file, replay_setup, to_evaluate

DAYS = ("2026-03-01", "2026-03-02")


def rows() -> pa.Table:
    times = [dt.datetime.fromisoformat(f"{day}T12:00:00+00:00") for day in DAYS]
    return accesses([{"accessed_at": at} for at in times], size_bytes=1).drop_columns(["day"])


def check(folder: Path, since: str, until: str | None = None) -> None:
    to_s = None if until is None else parse_day(until)
    to_evaluate(Settings.load(env={}, tables=str(folder / "t")), from_s=parse_day(since), to_s=to_s)


@pytest.mark.parametrize("since", ["2026-03-01", "2026-03-03"])
def test_days_that_leave_nothing_are_refused(tmp_path: Path, since: str) -> None:
    Tables(str(tmp_path / "t")).replace_arrow(ACCESSES, rows().append_column("day", pa.array(DAYS)))
    words = f"accesses from 2026-03-01 to 2026-03-02; --from {since} must leave some before it"
    with pytest.raises(InputError, match=words):
        check(tmp_path, since)
    check(tmp_path, "2026-03-02")


def test_tables_without_accesses_of_the_days_name_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(StaleInputError, match="no table accesses"):
        check(tmp_path, "2026-03-02")
    Tables(str(tmp_path / "t")).replace_arrow(ACCESSES, rows().append_column("day", pa.array(DAYS)))
    with pytest.raises(
        StaleInputError, match=r"no access from 2028-03-01 to 2028-03-02, nor .* of 2026-03-01"
    ):
        check(tmp_path, "2028-03-01", "2028-03-02")
    with pytest.raises(InputError, match="--to 2026-03-01 is before --from 2026-03-02"):
        check(tmp_path, "2026-03-02", "2026-03-01")


def test_what_stays_in_memory_is_when_accesses_became_known_and_their_activity(tmp_path: Path) -> None:
    read = rows().drop_columns(["known_at"])
    ends = [dt.datetime(2026, 3, 2, 13, tzinfo=dt.UTC), dt.datetime(2200, 1, 1, tzinfo=dt.UTC)]
    read = read.set_column(read.column_names.index("closed_at"), "closed_at", pa.array(ends))
    pq.write_table(read, tmp_path / "accesses.parquet")
    request = Request(tmp_path / "accesses.parquet", parse_day(DAYS[1]), None, None, ())
    setup = replay_setup(Settings.load(env={}), request, Tables(str(tmp_path / "t")))
    assert setup.known_s.tolist() == [parse_day(DAYS[1]) + 13 * 3600, 2**32 - 1]
    assert setup.known_s.nbytes == 8
    assert setup.details.column_names == ["activity"]


@pytest.mark.parametrize("time_us", [2**62, -(2**62), -1])
def test_times_that_no_access_has_are_refused(tmp_path: Path, time_us: int) -> None:
    at = rows().column_names.index("accessed_at")
    times = pa.array([time_us, 1_772_323_200_000_000], pa.timestamp("us", tz="UTC"))
    pq.write_table(rows().set_column(at, "accessed_at", times), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: accessed_at .* beyond the times of accesses"):
        copy_file(tmp_path / "a.parquet", Tables(str(tmp_path / "t")))


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"size_bytes": [1]}, "files.parquet has no column 'did'"),
        ({"did": [["cms:/f"]], "size_bytes": [1]}, "column 'did' is no string"),
        ({"did": ["cms:/f"], "size_bytes": [1], "created_at": ["then"]}, "'created_at' is no timestamp"),
    ],
)
def test_a_catalogue_that_cannot_be_used_is_named(
    tmp_path: Path, columns: dict[str, list[object]], error: str
) -> None:
    pq.write_table(rows(), tmp_path / "a.parquet")
    pq.write_table(pa.table(columns), tmp_path / "files.parquet")
    with pytest.raises(SchemaError, match=error):
        copy_file(tmp_path / "a.parquet", Tables(str(tmp_path / "t")))


def test_a_damaged_footer_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = {"accessed_at": rows()["accessed_at"], "did": ["s:a", "s:b"], "size_bytes": [1, 2]}
    pq.write_table(pa.table(table), path)
    copy_file(path, Tables(str(tmp_path / "t")))
    content = path.read_bytes()
    for at in range(content.rindex(b"schema") - 40, len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x15]) + content[at + 1 :])
        with contextlib.suppress(CachecastError):
            copy_file(path, Tables(str(tmp_path / "t")))
