"""Records of jobs that golden files cannot hold."""

import datetime as dt
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from matrix_records import json_lines
from pulls import pulled, pulled_text

from features.common.names import literal
from features.schema import JOB_RECORDS
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.pull_input import PullSummary
from jobs.loop.ingest.sources import lines, sql
from jobs.loop.ingest.sources.lines import MOST_LINE_BYTES

START_S = int(dt.datetime(2026, 3, 5, tzinfo=dt.UTC).timestamp())


def test_a_list_that_is_too_long_for_a_line_says_what_to_write(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_bytes(
        b'{"jobs": [{"pandaid": 1},' + b" " * MOST_LINE_BYTES + b'{"pandaid": 2}]}'
    )
    summary = pulled(tables, "panda_jobs", tmp_path / "jobs.json")
    assert summary.n_rejected == {"longer than 16 MiB: write one record a line": 1}


def test_records_and_lists_of_them_may_follow_each_other(tables: Tables, tmp_path: Path) -> None:
    lines = [
        '{"pandaid": 1}',
        '[{"pandaid": 2}, 7, {"pandaid": 3}]',
        "[]",
        '{"a": 1, "jobs": [{"pandaid": 4}]}',
        "[{]",
        '{"pandaid": 5, "more": {"jobs": [{"pandaid": 6}]}}',
    ]
    (tmp_path / "jobs.json").write_text("\n".join(lines))
    summary = pulled(tables, "panda_jobs", tmp_path / "jobs.json")
    assert summary.n_rejected == {"missing field: jobstatus": 5, "malformed record": 2}


GOLDEN = Path(__file__).parents[3] / "golden/pull/htcondor_history/input.jsonl"


def ads() -> list[dict[str, Any]]:
    """The ads of the golden case, good and absurd."""
    parsed = []
    for line in GOLDEN.read_text().splitlines():
        try:
            parsed.append(json.loads(line))
        except ValueError:
            continue
    return [ad for ad in parsed if isinstance(ad, dict)]


def as_condor_prints(some: Sequence[dict[str, Any]], indent: int = 2) -> str:
    """`condor_history -json`: braces in the first column, each attribute on a line of its own."""
    return "[\n" + "\n,\n".join(json.dumps(ad, indent=indent) for ad in some) + "\n]\n"


def history(folder: Path, text: str) -> tuple[PullSummary, list[dict[str, Any]]]:
    """What a pull of a history says and leaves."""
    folder.mkdir()
    tables = Tables(str(folder / "tables"))
    summary = pulled_text(tables, folder, "htcondor_history", text, salt="s")
    return summary, sorted(tables.read_arrow(JOB_RECORDS).to_pylist(), key=lambda row: str(row["event_id"]))


@pytest.mark.parametrize("form", ["condor", "jq"])
def test_history_over_several_lines_is_that_of_one_line_each(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = [ad | {"Stats": {"Files": [{"n": 1}, {"n": 2}], "s": 'a } " { b'}} for ad in ads()]
    plain = history(tmp_path / "plain", json_lines(nested))
    text = as_condor_prints(nested) if form == "condor" else json.dumps(nested, indent=4)
    monkeypatch.setattr(lines, "_CHUNK_BYTES", 700)  # an ad is longer
    summary, rows = history(tmp_path / "several", text)
    assert (summary.n_rows, summary.n_new, dict(summary.n_rejected)) == (
        plain[0].n_rows,
        plain[0].n_new,
        dict(plain[0].n_rejected),
    )
    assert rows == plain[1]


def test_a_damaged_record_over_several_lines_is_refused_alone(tmp_path: Path) -> None:
    good = ads()[:3]
    _, rows = history(tmp_path / "good", as_condor_prints(good))
    cut = "\n".join(json.dumps(ads()[3], indent=2).splitlines()[:9])
    lost = "\n".join(json.dumps(ads()[3], indent=2).splitlines()[9:])
    whole = [json.dumps(ad, indent=2) for ad in good]
    text = "\n".join(
        ["[", cut, whole[0], ",", whole[1], ",", whole[1], "nonsense", json.dumps(good[2]), cut, "]"]
    )
    summary, left = history(tmp_path / "damaged", text + "\n")
    assert left == rows
    assert (summary.n_new, summary.n_duplicates) == (3, 1)
    assert sum(summary.n_rejected.values()) == 3
    summary, left = history(tmp_path / "lost", "[\n" + lost + "\n,\n" + whole[0] + "\n]\n")
    assert len(left) == 1
    assert set(summary.n_rejected) == {"a part of a record: its beginning or its end is missing"}


def test_a_text_that_was_cut_takes_no_time(tmp_path: Path) -> None:
    whole = as_condor_prints(ads()[:1])
    _, rows = history(tmp_path / "whole", whole)
    began = time.monotonic()
    _, left = history(tmp_path / "cut", whole[:-2] + ',\n{\n  "Args": "' + '\\"' * 50_000)
    assert left == rows
    assert time.monotonic() - began < 5


def test_names_that_would_spoil_a_report_and_endless_jobs_are_refused(tables: Tables, tmp_path: Path) -> None:
    good: dict[str, Any] = {
        "JobStatus": 4,
        "JobStartDate": START_S,
        "CompletionDate": START_S + 100,
        "RemoteUserCpu": 9,
    }
    good |= {"RemoteWallClockTime": 90, "GlobalJobId": "alice@s.es#1.0#1", "ClusterId": 1}
    records = [
        good,
        *(good | {"GlobalJobId": f"s#{len(kind)}", "CMS_JobType": kind} for kind in ("x" * 1025, "\x1b[31m")),
        good | {"GlobalJobId": "s#3", "JobStartDate": 1},
    ]
    summary = pulled_text(tables, tmp_path, "htcondor_history", json_lines(records), salt="salt")
    assert summary.n_rejected == {
        "a name with control characters, or above 1024 bytes": 2,
        "more than a year from start to end": 1,
    }
    (row,) = tables.read_arrow(JOB_RECORDS).to_pylist()
    assert (row["job"], row["task"]) == ("s.es#1.0#1", "s.es#1")


@pytest.mark.parametrize("salt", ["salt", ""])
def test_a_workflow_of_crab_is_never_stored_by_its_name(tables: Tables, tmp_path: Path, salt: str) -> None:
    step = {"start": START_S, "stop": START_S + 100, "performance": {"cpu": {"TotalJobCPU": 90}}}
    workflow = "260301_120000:alice_crab_mine"
    report = {"wmaid": "1", "task": f"/{workflow}/Analysis", "steps": [step]}
    text = json_lines([report | {"meta_data": {"jobstate": "success"}}])
    assert pulled_text(tables, tmp_path, "wmarchive", text, salt=salt).n_new == 1
    (row,) = tables.read_arrow(JOB_RECORDS).to_pylist()
    assert "alice" not in str(row)
    assert row["task"] not in duckdb.sql(f"SELECT {sql.hashed('NULL', literal(workflow))}").fetchall()[0]
    assert row["activity"] == "analysis"


def test_a_line_of_very_many_records_is_refused_as_one(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text("[" + ",".join(["{}"] * (2**17 + 1)) + "]")
    summary = pulled(tables, "panda_jobs", tmp_path / "jobs.json")
    assert summary.n_rejected == {"malformed record": 1}
