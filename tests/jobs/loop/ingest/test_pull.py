import datetime as dt
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pulls import LOCAL, pulled
from raw_records import trace
from rucio_avro import write_dump

from features.common.errors import ConflictError, InputError, SchemaError
from features.schema import ACCESSES, FILES, JOB_RECORDS, REJECTS
from jobs.ground.settings.our_sources import OURS
from jobs.ground.store.locks import exclusive
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.pull_input import PullSummary
from jobs.loop.ingest.sources import select_sources, sql

GOLDEN = Path(__file__).parents[3] / "golden/pull"


def outcome(tables: Tables, summary: PullSummary) -> dict[str, Any]:
    """All that a pull left, in JSON's types and without null columns."""
    counts = {
        "n_rows": summary.n_rows,
        "n_new": summary.n_new,
        "n_duplicates": summary.n_duplicates,
        "n_lost": summary.n_lost,
        "days": list(summary.days),
        "n_rejected": dict(summary.n_rejected),
    }
    contents = {
        table.name: rows(tables, table)
        for table in (ACCESSES, FILES, JOB_RECORDS, REJECTS)
        if tables.exists(table)
    }
    for row in contents.get("rejects", []):
        row["input"] = row["input"].rsplit("/", 1)[-1]
    return counts | contents


def rows(tables: Tables, table: Any) -> list[dict[str, Any]]:
    columns = {*table.column_names, *table.partition}
    order = [(name, "ascending") for name in (*table.partition, "did", *table.key) if name in columns]
    plain = tables.read_arrow(table).sort_by(order).to_pylist()
    return [{name: plainly(value) for name, value in row.items() if value is not None} for row in plain]


def plainly(value: object) -> object:
    return value.isoformat() if isinstance(value, dt.datetime) else value


CASES = sorted(str(path.parent.relative_to(GOLDEN)) for path in GOLDEN.rglob("input.*"))


def input_of(case: str, folder: Path) -> str:
    """The input of a golden case; a dump is written as Avro into `folder`."""
    (path,) = (GOLDEN / case).glob("input.*")
    return str(write_dump(path, folder / "dump") if case.startswith("rucio_dumps") else path)


def site_of(case: str) -> dict[str, Any]:
    """The settings of a golden case, if it has any."""
    known = GOLDEN / case / "site.json"
    return json.loads(known.read_text()) if known.exists() else {}


def test_every_source_has_a_golden_case() -> None:
    assert {case.split("/")[0] for case in CASES} == set(OURS)


@pytest.mark.parametrize("case", CASES)
def test_golden_input_gives_the_expected_tables(
    request: pytest.FixtureRequest, tables: Tables, tmp_path: Path, case: str
) -> None:
    engine = request.getfixturevalue("spark_engine") if "dumps" in case else LOCAL
    source, path, site = case.split("/", maxsplit=1)[0], input_of(case, tmp_path), site_of(case)
    summary = pulled(tables, source, path, engine=engine, salt="pepper", **site)
    contents = outcome(tables, summary)
    expect = GOLDEN / case / "expect.json"
    if os.environ.get("WRITE_GOLDEN"):
        expect.write_text(json.dumps(contents, indent=1, sort_keys=True) + "\n")
    assert contents == json.loads(expect.read_text())

    written = sum(len(contents.get(name, [])) for name in ("accesses", "files", "job_records"))
    rejected = sum(row["n_rows"] for row in contents["rejects"])
    assert summary.n_rows == summary.n_new + summary.n_duplicates + rejected
    assert (summary.n_new, rejected) == (written, sum(summary.n_rejected.values()))

    before = {table.name: tables.head(table) for table in (ACCESSES, FILES, JOB_RECORDS, REJECTS)}
    again = pulled(tables, source, path, engine=engine, salt="other salt", **site)
    assert (again.n_new, again.days, again.n_duplicates) == (0, (), summary.n_new + summary.n_duplicates)
    assert {table.name: tables.head(table) for table in (ACCESSES, FILES, JOB_RECORDS, REJECTS)} == before


@pytest.mark.parametrize("source", select_sources(sorted(OURS), lambda source: source.table is ACCESSES))
def test_test_files_of_monitoring_are_no_reads_in_any_source(tables: Tables, source: str) -> None:
    case = next(case for case in CASES if case.split("/")[0] == source)
    expect = json.loads((GOLDEN / case / "expect.json").read_text())
    summary = pulled(tables, source, input_of(case, Path()), **(site_of(case) | {"test_files": ["*"]}))
    assert (summary.n_new, summary.n_rows) == (0, expect["n_rows"])
    of_its_own = expect["n_rejected"].get(sql.TEST_FILE, 0)
    assert summary.n_rejected[sql.TEST_FILE] == expect["n_new"] + expect["n_duplicates"] + of_its_own


class Real(NamedTuple):
    """A real file, and what pulling it reads and writes."""

    source: str
    file: str
    n_rows: int
    n_new: int
    n_days: int


CARRIED = [
    Real("osdf_accesses", "osdf_fstream_decoded.csv.gz", 2219, 2219, 2),
    Real("xcache_gstream", "gstream-6.2.1.txt", 2, 2, 1),
    Real("xcache_gstream", "gstream-5.5.3.txt", 0, 0, 0),
    Real("xrootd_fstream", "osdf_fstream_packets.jsonl.gz", 2313, 2216, 2),
]
NOT_CARRIED = [
    Real("osdf_log", "samples/osdf_access_log.txt", 7, 7, 2),
    Real("popularity_series", "data/lhcb_weekly_1_78.csv.gz", 27044, 27044, 77),
    Real("popularity_series", "data/cms_daily_60d.csv.gz", 9960, 3253, 60),
]


@pytest.mark.parametrize("real", CARRIED, ids=lambda real: real.file)
def test_carried_data_is_pulled_whole(tables: Tables, data: Path, real: Real) -> None:
    check_pulled_whole(tables, data / real.file, real)


def test_reads_through_a_newer_cache_count_what_it_fetched(tables: Tables, data: Path) -> None:
    """It counts a read of a block that is on its way as a hit; what it wrote to disk tells."""
    capture = data / "gstream-6.2.1.txt"
    pulled(tables, "xcache_gstream", capture, salt="pepper")
    sizes = tables.read_arrow(ACCESSES, columns=["bytes_hit", "bytes_missed", "read_bytes"]).to_pylist()
    assert [tuple(row.values()) for row in sizes] == [
        (0, 52428800, 52428800)
    ] * 2  # each was copied once, cold


@pytest.mark.parametrize("real", NOT_CARRIED, ids=lambda real: real.file)
def test_shared_data_is_pulled_whole(tables: Tables, shared: Callable[[str], Path], real: Real) -> None:
    check_pulled_whole(tables, shared(real.file), real)


def check_pulled_whole(tables: Tables, path: Path, real: Real) -> None:
    source, _, n_rows, n_new, n_days = real
    summary = pulled(tables, source, path, salt="pepper")
    assert (summary.n_rows, summary.n_new, len(summary.days)) == (n_rows, n_new, n_days)
    assert n_rows == n_new + summary.n_duplicates + sum(summary.n_rejected.values())
    # Of the f-stream's closes 45 come before their opens.
    assert summary.n_duplicates == (45 if source == "xrootd_fstream" else 0)
    assert tables.snapshot(ACCESSES).n_rows == n_new


@pytest.mark.parametrize("by_spark", [False, True])
def test_late_rows_reopen_their_day_and_leave_the_others(
    request: pytest.FixtureRequest, by_spark: bool, tables: Tables, tmp_path: Path
) -> None:
    engine = request.getfixturevalue("spark_engine") if by_spark else LOCAL
    first, late = tmp_path / "first.jsonl", tmp_path / "late.jsonl.gz"
    first.write_text(trace() + trace(uuid="v", transferStart=1772409600))
    late.write_bytes(gzip.compress(trace(uuid="w").encode()))
    pulled(tables, "rucio_traces", first, engine=engine)
    before = tables.snapshot(ACCESSES).partitions
    summary = pulled(tables, "rucio_traces", late, engine=engine)
    after = tables.snapshot(ACCESSES).partitions
    assert (summary.n_new, summary.days) == (1, ("2026-03-01",))
    assert {key[0]: part.n_rows for key, part in after.items()} == {"2026-03-01": 2, "2026-03-02": 1}
    assert after["2026-03-02",] == before["2026-03-02",]


def test_late_records_are_merged_and_counted(tables: Tables, tmp_path: Path) -> None:
    """Late: published more than three days after the end, whenever it is pulled; counted once."""
    start, days = 1772323200, 86400
    ends = {"in-time": start + 3 * days + 1, "late": start + 3 * days + 2, "long": start + 9 * days}
    records = [trace(uuid=name, traceTimeentryUnix=known) for name, known in ends.items()]
    records[2] = trace(uuid="long", transferEnd=start + 8 * days, traceTimeentryUnix=ends["long"])
    (tmp_path / "t").write_text("".join(records))
    first, again = (pulled(tables, "rucio_traces", tmp_path / "t") for _ in range(2))
    assert (first.n_new, first.n_late, again.n_new, again.n_late) == (3, 1, 0, 0)


def test_rejects_of_an_input_are_replaced_and_of_others_kept(tables: Tables, tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text("broken\n")
    second.write_text("broken\nbroken\n")
    for path in (first, second):
        pulled(tables, "rucio_traces", path)
    first.write_text(trace())
    pulled(tables, "rucio_traces", first)
    assert tables.read_arrow(REJECTS)["n_rows"].to_pylist() == [2]


def test_without_a_salt_there_is_no_user(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(trace(usr="jdoe"))
    pulled(tables, "rucio_traces", tmp_path / "t")
    assert tables.read_arrow(ACCESSES)["user"].to_pylist() == [None]


def test_a_path_that_is_not_there_is_an_input_error(tables: Tables, tmp_path: Path) -> None:
    for source in sorted(OURS):
        if source == "rucio_dumps":
            continue  # which Spark reads
        with pytest.raises(InputError, match="nothing-here"):
            pulled(tables, source, tmp_path / "nothing-here")
    assert not tables.exists(ACCESSES)


def test_missing_columns_are_named(tables: Tables, tmp_path: Path) -> None:
    for source, columns, missing in (
        ("osdf_accesses", "time,lfn", "close_time"),
        ("popularity_series", "time,lfn", r"'week'.* or .*'n_accesses'"),
        ("atlas_popularity", "timestamp\tscope\tname", r"\['eventtype', 'file_ops', 'ops'\]"),
    ):
        (tmp_path / "x").write_text(f"{columns}\n")
        with pytest.raises(SchemaError, match=missing):
            pulled(tables, source, tmp_path / "x")


def test_two_pulls_at_once_are_refused(tables: Tables) -> None:
    with (
        exclusive(Path(tables.root, ".pull.lock"), "pull"),
        pytest.raises(ConflictError, match=f"process {os.getpid()}"),
    ):
        pulled(tables, "osdf_log", "x")
