from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from job_records import PIC, Planted, plant
from monitoring import closing, fstream, opening, users

from features.common.errors import StaleInputError
from features.schema import JOB_RECORDS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.local_engine import LocalEngine
from jobs.loop.ingest.pull_input import pull
from jobs.studies.efficiency import efficiency
from jobs.studies.efficiency.reads import JobSelection, jobs_with_places

DAYS = JobSelection("2026-03-01", "2026-03-14")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.load(tables=str(tmp_path / "tables"), env={})


def test_pics_planted_efficiencies_are_recovered(settings: Settings, tmp_path: Path) -> None:
    plant(Tables(settings.tables.root))
    found = efficiency.run(settings, DAYS, out=tmp_path / "page.html")
    assert (found.jobs, found.found_share, found.shared_reads) == (4000, 1.0, 0)
    places = {group.place: group for group in found.by_place}
    assert set(places) == {one.place for one in PIC}
    for one in PIC:
        group = places[one.place]
        assert group.jobs == one.jobs
        assert group.tasks == 50
        assert group.cpu_efficiency_share == pytest.approx(one.efficiency, abs=0.02)
        assert group.cpu_efficiency_lower_share is not None and group.cpu_efficiency_upper_share is not None
        assert group.cpu_efficiency_lower_share < one.efficiency < group.cpu_efficiency_upper_share
        assert 0.012 < group.cpu_efficiency_upper_share - group.cpu_efficiency_lower_share < 0.04
        assert group.failed_share == pytest.approx(one.failed, abs=0.02)
    assert "a CPU efficiency of 9" in (tmp_path / "page.html").read_text()


def test_where_all_jobs_failed_there_is_no_efficiency_but_waste(settings: Settings, tmp_path: Path) -> None:
    plant(Tables(settings.tables.root), (Planted("remote", 40, 0.9, failed=1.0), Planted("hit", 40, 0.9)))
    found = efficiency.run(settings, DAYS, out=tmp_path / "page.html")
    (failed,) = [group for group in found.by_place if group.place == "remote"]
    assert (failed.cpu_efficiency_share, failed.failed_share) == (None, 1)
    assert failed.wasted_core_hours == failed.core_hours > 40
    assert "Hits: a CPU efficiency" in (tmp_path / "page.html").read_text()


def test_a_job_that_two_sources_report_is_told(settings: Settings) -> None:
    tables = Tables(settings.tables.root)
    plant(tables, PIC[:1])
    rows = tables.read_arrow(JOB_RECORDS)
    for name, values in (
        ("source", ["wmarchive"] * len(rows)),
        ("event_id", [f"w{k}" for k in range(len(rows))]),
    ):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    tables.replace_arrow(JOB_RECORDS, pa.concat_tables([tables.read_arrow(JOB_RECORDS), rows]))
    both = efficiency.run(settings, DAYS)
    assert both.sources == {"htcondor_history": 1000, "wmarchive": 1000}
    one = efficiency.run(settings, dataclasses.replace(DAYS, source="wmarchive"))
    assert (one.jobs, one.sources) == (1000, {"wmarchive": 1000})


def test_without_job_records_there_is_an_error_that_says_what_to_pull(settings: Settings) -> None:
    with pytest.raises(StaleInputError, match="pull --source htcondor_history"):
        efficiency.run(settings, DAYS)


def test_what_cmssw_tells_a_server_finds_the_crab_job_of_htcondors_history(
    settings: Settings, tmp_path: Path
) -> None:
    history = Path(__file__).parents[3] / "golden/pull/htcondor_history/input.jsonl"
    begun_s, session = 1772323200, "xroot/pilot.7177:7@wn1.ciemat.es"
    work = "1-1_https://glidein.cern.ch/1-1/260228:101553:jdoe:crab:Muon:2025C_0"
    datagrams = [
        users(b"u", session, 5, stod=begun_s - 60),
        users(b"i", f"{session}\n{work}", 9, stod=begun_s - 60),
        fstream(
            opening(1), closing(1), pseq=0, begin=begun_s + 60, end=begun_s + 120, stod=begun_s - 60, sid=7
        ),
    ]
    lines = [json.dumps({"remote": "h:1", "data": base64.b64encode(one).decode()}) for one in datagrams]
    (tmp_path / "packets.jsonl").write_text("\n".join(lines))
    tables = Tables(settings.tables.root)
    for source, path in (("htcondor_history", history), ("xrootd_fstream", tmp_path / "packets.jsonl")):
        pull(LocalEngine(), tables, source=source, path=str(path), day=dt.date(2026, 3, 5), salt="pepper")
    with jobs_with_places(tables, DAYS, ()) as database:
        found = database.sql("SELECT node, job FROM jobs JOIN accesses USING (job)").fetchall()
    assert [node for node, _ in found] == ["wn1.ciemat.es"]
    assert "jdoe" not in str(found)


def test_jobs_without_times_count_as_jobs_and_failures_and_in_no_hours(
    settings: Settings, tmp_path: Path
) -> None:
    tables = Tables(settings.tables.root)
    plant(tables, (Planted("hit", 400, 0.9, failed=0.5),))
    before = efficiency.run(settings, DAYS)
    rows = tables.read_arrow(JOB_RECORDS).to_pylist()
    lacking = [{"cpu_s": None}, {"wall_s": None}, {"cores": None}, {"ended_at": None}, {"started_at": None}]
    early = [
        row
        | lacking[k % 5]
        | {"failed": True, "event_id": f"e{k}", "job": f"e{k}", "cores": 1, **lacking[k % 5]}
        for k, row in enumerate(rows[:100])
    ]
    good = [row | {"cpu_s": None, "failed": False, "event_id": f"g{k}"} for k, row in enumerate(rows[:50])]
    schema = tables.read_arrow(JOB_RECORDS).schema
    tables.replace_arrow(JOB_RECORDS, pa.Table.from_pylist([*rows, *early, *good], schema))
    after = efficiency.run(settings, DAYS, out=tmp_path / "page.html")
    assert (after.jobs, after.untimed_jobs, before.untimed_jobs) == (550, 110, 0)
    shares = [
        (
            sum(group.jobs * (group.failed_share or 0) for group in one.by_place),
            sum(group.core_hours - group.wasted_core_hours for group in one.by_place),
            next(group.cpu_efficiency_share for group in one.by_place if group.place == "hit"),
        )
        for one in (before, after)
    ]
    assert shares[1] == pytest.approx((shares[0][0] + 100, *shares[0][1:]))
    assert "110 of 550" in (tmp_path / "page.html").read_text().replace("\u00a0", " ")
