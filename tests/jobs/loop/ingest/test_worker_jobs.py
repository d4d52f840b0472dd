"""Which records are jobs of workers, and what is known of those that failed early or ran several times."""

import csv
import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from matrix_records import json_lines
from pulls import LOCAL, pulled, pulled_text

from features.schema import JOB_RECORDS, REJECTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.pull_input import Engine
from jobs.studies.efficiency import efficiency
from jobs.studies.efficiency.reads import JobSelection

DAY = dt.date(2026, 4, 2)
START_S = int(dt.datetime(2026, 4, 2, 6, tzinfo=dt.UTC).timestamp())
AD = {
    **{"GlobalJobId": "s#7.0#1", "ClusterId": 7, "ProcId": 0, "JobStatus": 4, "ExitCode": 0},
    **{"LastRemoteHost": "slot1@wn.org", "JobStartDate": START_S, "CompletionDate": START_S + 9000},
    **{"RemoteWallClockTime": 8000.0, "RemoteUserCpu": 5000.0, "RemoteSysCpu": 100.0},
}
PANDA = {
    **{"pandaid": 8, "jobstatus": "failed", "jeditaskid": 9, "computingsite": "EDGE"},
    **{"starttime": "2026-04-02 06:00:00", "endtime": "2026-04-02 08:00:00", "cpuconsumptiontime": 5000},
    **{"wn": None, "modificationhost": "s@wn.org", "proddblock": "mc:d", "processingtype": "evgen"},
    **{"actualcorecount": 1, "modificationtime": "2026-04-02 09:00:00", "creationhost": "ui.org"},
    **dict.fromkeys(("corecount", "statechangetime", "creationtime", "piloterrorcode", "ddmerrorcode")),
}
META = {"jobstate": "jobfailed", "ts": START_S + 9000, "fwjr_id": "1-0", "host": "agent.org"}
STEP = {
    **{"name": "cmsRun1", "start": START_S, "stop": START_S + 8000, "site": "T2_XX_Edge", "errors": []},
    **{"performance": {"cpu": {"TotalJobCPU": 5000.0, "NumberOfThreads": 2}}, "output": [], "input": []},
}


def report(*steps: dict[str, Any], **meta: object) -> dict[str, Any]:
    """A report of WMArchive."""
    task = "/prod_wf/Processing"
    return {"task": task, "LFNArray": [], "steps": steps, "meta_data": META | meta}


ENVELOPES = ("data", "_source")
IDS = {"htcondor_history": "GlobalJobId", "panda_jobs": "pandaid", "wmarchive": "wmaid"}


def columns_of(
    folder: Path,
    source: str,
    records: Sequence[dict[str, Any]],
    *names: str,
    **site: Any,
) -> list[Any]:
    """For each of `records` the columns `names` of its row, or why it was refused.

    Each is a file: a CSV if the folder is called so.
    """
    raw = folder / "raw"
    raw.mkdir(parents=True)
    for number, record in enumerate(records):
        changed = {**record, IDS[source]: f"j{number}"}
        changed = {
            key: value | {IDS[source]: f"j{number}"} if key in ENVELOPES else value
            for key, value in changed.items()
        }
        if folder.name == "csv":
            with (raw / f"j{number}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, list(changed))
                writer.writeheader()
                writer.writerow(changed)
        else:
            (raw / f"j{number}.jsonl").write_text(json.dumps(changed))
    tables = Tables(str(folder / "tables"))
    pulled(tables, source, raw, day=DAY, salt="s", **site)
    rows = tables.read_arrow(JOB_RECORDS).to_pylist() if tables.exists(JOB_RECORDS) else []
    refused = tables.read_arrow(REJECTS).to_pylist() if tables.exists(REJECTS) else []
    by_job = {row["job"]: tuple(row[name] for name in names) for row in rows}
    by_job |= {row["input"].split("/")[-1].split(".")[0]: row["reason"] for row in refused}
    return [by_job[f"j{number}"] for number in range(len(records))]


ANSWERS = [
    ("01-dagman-universe/history.jsonl", "htcondor_history", (12, 0, 0.95, 0.0)),
    ("02-restarted-jobs/history.jsonl", "htcondor_history", (12, 0, 0.965, 0.0)),
    ("10-pandas-floats/history.jsonl", "htcondor_history", (12, 0, 0.136, 0.0)),
    ("10-pandas-floats/panda.csv", "panda_jobs", (3, 0, 0.87, 0.0)),
    ("13-jobs-that-died-early/wmarchive.jsonl", "wmarchive", (30, 18, 0.914, 0.6)),
    ("13-jobs-that-died-early/panda.jsonl", "panda_jobs", (24, 12, 0.917, 0.5)),
]


def test_efficiency_answers_rightly_for_records_as_they_come(
    tmp_path: Path, shared: Callable[[str], Path]
) -> None:
    for case, source, expected in ANSWERS:
        settings = Settings.load(tables=str(tmp_path / case), env={})
        page = tmp_path / "page.html"
        pulled(Tables(settings.tables.root), source, shared(f"cases/{case}"), day=dt.date(2026, 3, 3))
        answer = efficiency.run(settings, JobSelection("2026-03-01", "2026-03-03"), out=page)
        (group,) = answer.by_place
        shares = [round(share or 0, 3) for share in (group.cpu_efficiency_share, group.failed_share)]
        assert (group.jobs, answer.untimed_jobs, *shares) == expected, case
        lacking = f"{answer.untimed_jobs} of {group.jobs} jobs have no CPU time"
        assert (lacking in re.sub("\\s", " ", page.read_text())) == bool(answer.untimed_jobs)


NO_SLOT = "not a job: it holds no worker's slot"


def test_jobs_of_a_workers_slot_count_and_no_others(tmp_path: Path) -> None:
    universes: dict[Any, Any] = {
        **dict.fromkeys((5, "5", "5.0", None, 11, 13, 10, "vanilla", "Docker"), (False,)),
        **dict.fromkeys((7, "7", "7.0", 12, "12.0", 9, "scheduler", "Local", 6, "x"), NO_SLOT),
    }
    ads = [AD | {"JobUniverse": universe} for universe in universes]
    floats = [AD | {"JobUniverse": 5.0}, AD | {"JobUniverse": 7.0}, AD | {"Cmd": "/usr/bin/condor_dagman"}]
    failed = columns_of(tmp_path, "htcondor_history", [*ads, *floats], "failed")
    assert failed == [*universes.values(), (False,), NO_SLOT, NO_SLOT]


OTHER_RUNS = "CPU time and wall time of other runs"
ALL = {"CumulativeRemoteUserCpu": 7000, "CumulativeRemoteSysCpu": 200.0}
OF_RUNS: list[tuple[dict[str, Any], Any]] = [
    ({}, (5100.0, 8000.0, False)),
    ({"NumJobStarts": 1, "NumShadowStarts": 1.0}, (5100.0, 8000.0, False)),
    (ALL | {"NumJobStarts": 3, "LastRemoteWallClockTime": 5500.0}, (7200.0, 8000.0, False)),
    ({"NumJobStarts": 3, "LastRemoteWallClockTime": 5500.0}, (5100.0, 5500.0, False)),
    ({"LastRemoteWallClockTime": "5500.0", "CommittedTime": 1}, (5100.0, 5500.0, False)),
    ({"LastRemoteWallClockTime": 0, "CommittedTime": 5400}, (5100.0, 5400.0, False)),
    ({"CommittedTime": "/Expr(x)/", "NumJobStarts": 2}, OTHER_RUNS),
    ({"NumShadowStarts": "2"}, OTHER_RUNS),
    ({"NumShadowStarts": 2, "ExitCode": 1}, (None, 8000.0, True)),
    ({"JobCurrentStartDate": START_S + 3000}, OTHER_RUNS),
    ({"CumulativeRemoteUserCpu": "/Expr(error)/"}, (5100.0, 8000.0, False)),
    (ALL | {"RemoteWallClockTime": None}, "missing field: wall time"),
    ({"RemoteUserCpu": "undefined"}, "missing field: CPU time"),
    ({"RemoteUserCpu": None, "RemoteSysCpu": None, "ExitCode": 84}, (None, 8000.0, True)),
    ({"JobStatus": 3, "RemoteWallClockTime": None, "CompletionDate": None}, (5100.0, None, True)),
    ({"JobStatus": 3, "JobStartDate": 0}, "not a job: removed before it ran"),
]


def test_cpu_and_wall_time_are_of_the_same_runs(tmp_path: Path) -> None:
    ads = [AD | changes for changes, _ in OF_RUNS]
    values_of_runs = columns_of(tmp_path, "htcondor_history", ads, "cpu_s", "wall_s", "failed")
    assert values_of_runs == [expected for _, expected in OF_RUNS]


def threads(value: object) -> dict[str, Any]:
    return report(
        STEP | {"performance": {"cpu": {"TotalJobCPU": 9.0, "NumberOfThreads": value}}}, jobstate="success"
    )


def test_eight_cores_are_eight_however_they_are_written_and_what_is_unreadable_is_not_one(
    tmp_path: Path,
) -> None:
    eight = [8, 8.0, "8", "8.0", "8.00", "8e0"]
    values = [*eight, "8.5", "many", "/Expr(ifThenElse(A,4,1))/", -1]
    expected = [*[(8,)] * len(eight), *["impossible number of cores"] * (len(values) - len(eight))]
    good = PANDA | {"jobstatus": "finished"}
    for folder, source, records in (
        ("h", "htcondor_history", [AD | {"RequestCpus": value} for value in values]),
        ("p", "panda_jobs", [good | {"actualcorecount": value} for value in values]),
        ("csv", "panda_jobs", [good | {"actualcorecount": "", "corecount": value} for value in values]),
        ("w", "wmarchive", [threads(value) for value in values]),
    ):
        assert columns_of(tmp_path / folder, source, records, "cores") == expected, source
    several = [AD | {"RequestCpus": 2, "MaxHosts": 4}, AD | {"RequestCpus": "many", "ExitCode": 1}, AD]
    assert columns_of(tmp_path / "m", "htcondor_history", several, "cores") == [(8,), (None,), (1,)]


NEVER = "not a job: it has not run"
NO_TIMES = dict.fromkeys(("starttime", "endtime", "cpuconsumptiontime"))
LATER = {"starttime": "2026-05-02 06:00:00", "endtime": "2026-05-02 08:00:00"}
OF_PANDA: list[tuple[dict[str, Any], Any]] = [
    ({"cpuconsumptiontime": None, "piloterrorcode": 1099}, (7200.0, None, 1099, "wn.org")),
    ({"endtime": None}, (None, 5000.0, None, "wn.org")),
    (NO_TIMES | {"piloterrorcode": 1305}, (None, None, 1305, None)),
    (NO_TIMES | {"wn": "wn7.org"}, (None, None, None, "wn7.org")),
    ({"starttime": "0", "endtime": "1970-01-01 00:00:00"}, (None, 5000.0, None, None)),
    ({"starttime": "NaT"}, (None, 5000.0, None, None)),
    ({"modificationhost": "aipanda157.cern.ch"}, (7200.0, 5000.0, None, None)),
    ({"modificationhost": "ui.org"}, (7200.0, 5000.0, None, None)),
    (NO_TIMES | {"jobstatus": "cancelled"}, NEVER),
    (NO_TIMES | {"jobstatus": "closed"}, NEVER),
    (NO_TIMES | {"ddmerrorcode": 200}, NEVER),
    (NO_TIMES | {"modificationtime": None}, "missing field: any time"),
    (NO_TIMES | {"jobstatus": "finished"}, NEVER),
    ({"jobstatus": "finished", "cpuconsumptiontime": None}, "missing field: CPU time"),
    ({"jobstatus": "finished", "endtime": None}, "missing field: end"),
    ({"starttime": "soon"}, "unparsable time: starttime"),
    ({"endtime": None, "starttime": "2049-01-01 00:00:00"}, "ends in the future"),
    # A pull that is repeated is of a day long before what is new since.
    (LATER | {"modificationhost": "ui.org"}, (7200.0, 5000.0, None, None)),
]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_pandas_jobs_that_failed_early_count_and_those_that_never_ran_do_not(
    tmp_path: Path, form: str
) -> None:
    records = [PANDA | changes for changes, _ in OF_PANDA]
    columns = columns_of(tmp_path / form, "panda_jobs", records, "wall_s", "cpu_s", "exit_code", "node")
    assert columns == [expected for _, expected in OF_PANDA]


def test_a_job_without_a_start_is_dated_by_what_there_is(tmp_path: Path) -> None:
    times: list[dict[str, Any]] = [
        {"statechangetime": "2026-04-02T09:00:00.5", "modificationtime": "2026-05-01 00:00:00"},
        {"modificationtime": None, "creationtime": "2026-04-02T09:00:00.5"},
        {"endtime": "2026-04-02 09:00:00.5"},
    ]
    records = [PANDA | NO_TIMES | times_of for times_of in times]
    columns = columns_of(tmp_path, "panda_jobs", records, "known_at", "started_at", "day")
    assert columns == [(dt.datetime(2026, 4, 2, 9, 0, 0, 500000, dt.UTC), None, "2026-04-02")] * 3


NO_STEP: dict[str, Any] = {
    "name": "JobKilled",
    "start": None,
    "stop": None,
    "site": {},
    "errors": [{"exitCode": 71304}],
}
OUT: dict[str, Any] = {"name": "stageOut1", "start": None, "stop": None, "errors": [{"exitCode": 99999}]}
FAILED = {"errors": [{"exitCode": "8001"}, {"exitCode": 8001}]}
SITE = "T2_XX_Edge"
OF_REPORTS: list[tuple[dict[str, Any], Any]] = [
    (report(NO_STEP), (None, None, 71304, None, None)),
    (report(STEP | {"stop": None}), (None, 5000.0, None, SITE, None)),
    (report(STEP | {"start": 0, "stop": 0}), (None, 5000.0, None, SITE, None)),
    (report(NO_STEP, wn_name="wn.org"), (None, None, 71304, None, "wn.org")),
    (report(NO_STEP, wn_name="unknown"), (None, None, 71304, None, None)),
    (report(OUT, STEP | FAILED), (8000.0, 5000.0, 8001, SITE, None)),
    (report(STEP, OUT), (8000.0, 5000.0, 99999, SITE, None)),
    (report(STEP | {"site": "NA"}, STEP), (8000.0, 10000.0, None, SITE, None)),
    (report(STEP | {"performance": {}}), (8000.0, None, None, SITE, None)),
    (
        report(STEP | {"performance": {}, "name": "logCollect1"}, jobstate="success"),
        (8000.0, None, 0, SITE, None),
    ),
    (report(STEP | {"performance": {}}, jobstate="success"), "missing field: CPU time"),
    (report(STEP | {"stop": None}, jobstate="success"), "missing field: end"),
    (report(NO_STEP, ts=None), "missing field: any time"),
    (report(NO_STEP, ts=2493072000), "ends in the future"),
    (report(NO_STEP, jobstate="submitfailed"), NEVER),
    ({"data": report(NO_STEP), "metadata": {}}, (None, None, 71304, None, None)),
    ({"_index": "x", "_source": report(STEP)}, (8000.0, 5000.0, None, SITE, None)),
]


def test_reports_of_jobs_that_failed_early(tmp_path: Path) -> None:
    reports = [record for record, _ in OF_REPORTS]
    columns = columns_of(tmp_path, "wmarchive", reports, "wall_s", "cpu_s", "exit_code", "site", "node")
    assert columns == [expected for _, expected in OF_REPORTS]


def test_a_job_that_names_no_site_is_of_ones_own_pool_only(tmp_path: Path) -> None:
    records = {
        "htcondor_history": AD,
        "panda_jobs": PANDA | {"computingsite": None},
        "wmarchive": report(NO_STEP),
    }
    columns = [
        *(
            columns_of(tmp_path / source, source, [record], "site", job_sites=["EDGE"])
            for source, record in records.items()
        )
    ]
    assert columns == [[(None,)], *[["not a job: of another site"]] * 2]


def test_what_was_first_reported_without_an_end_is_one_job_in_any_order_and_by_both_engines(
    spark_engine: Engine, tmp_path: Path
) -> None:
    reports = [
        PANDA | NO_TIMES | {"piloterrorcode": 1099},
        PANDA | {"endtime": None, "piloterrorcode": 1099},
        PANDA | {"piloterrorcode": 1099},
    ]
    one_by_one = [[record] for record in reports]
    contents = []
    by_us = ([reports], one_by_one, one_by_one[::-1])
    for number, (engine, pieces) in enumerate((*((LOCAL, of) for of in by_us), (spark_engine, by_us[-1]))):
        tables = Tables(str(tmp_path / f"tables {number}"))
        for several in pieces:
            pulled_text(tables, tmp_path, "panda_jobs", json_lines(several), engine=engine)
        contents.append(tables.read_arrow(JOB_RECORDS).to_pylist())
    assert all(rows == contents[0] for rows in contents)
    assert [(row["wall_s"], row["exit_code"]) for row in contents[0]] == [(7200.0, 1099)]
