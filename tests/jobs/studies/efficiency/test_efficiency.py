"""Efficiencies of jobs by the place of their reads, as planted, and the settings that follow from them."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

import job_records
import pyarrow as pa
import pytest
from cachecast_main import cachecast
from job_records import PIC, Planted, plant
from monitoring import closing, fstream, opening, users

from features.common.errors import StaleInputError
from features.schema import JOB_RECORDS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.local_engine import LocalEngine
from jobs.loop.ingest.pull_input import pull
from jobs.studies.efficiency import efficiency, refit
from jobs.studies.efficiency.reads import JobSelection, jobs_with_places

DAYS = JobSelection("2026-03-01", "2026-03-14")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.load(tables=str(tmp_path / "tables"), env={})


def test_pics_planted_efficiencies_are_recovered(settings: Settings, tmp_path: Path) -> None:
    plant(Tables(settings.tables.root))
    answer = efficiency.run(settings, DAYS, out=tmp_path / "page.html")
    assert (answer.jobs, answer.found_share, answer.shared_reads) == (4000, 1.0, 0)
    places = {group.place: group for group in answer.by_place}
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
    answer = efficiency.run(settings, DAYS, out=tmp_path / "page.html")
    (failed,) = [group for group in answer.by_place if group.place == "remote"]
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
        rows = database.sql("SELECT node, job FROM jobs JOIN accesses USING (job)").fetchall()
    assert [node for node, _ in rows] == ["wn1.ciemat.es"]
    assert "jdoe" not in str(rows)


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


DAYS = JobSelection("2026-03-01", "2026-03-14")
PLANTED = (
    Planted("local", 400, 0.95, origin="se.pic.es"),
    Planted("hit", 400, 0.93),
    Planted("remote", 400, 0.80, origin="se.cern.ch"),
    Planted("remote", 400, 0.704),
    Planted("miss", 400, 0.64),
)


def test_the_printed_settings_are_the_planted_ones(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    plant(Tables(str(tables)), PLANTED)
    (tmp_path / "far.toml").write_text("[benefit]\ncache_rtt_ms = 9\n")
    words = ("refit", "--from", DAYS.since, "--to", DAYS.until, "--tables", tables)
    (tmp_path / "site.toml").write_text(cachecast(*words, "--conf", tmp_path / "far.toml").stdout)
    benefit = Settings.load(tmp_path / "site.toml", env={}).benefit
    assert [point.rtt_ms for point in benefit.points] == [0, 16, 150]
    assert [point.cpu_efficiency for point in benefit.points] == pytest.approx([0.95, 0.80, 0.704], abs=0.02)
    assert [(p.rtt_ms, round(p.cpu_efficiency, 1)) for p in benefit.hit_points] == [(0, 0.9), (9, 0.9)]
    assert benefit.hit_points[1].cpu_efficiency == pytest.approx(0.93, abs=0.02)
    assert benefit.miss_slowdown == pytest.approx(0.704 / 0.64 - 1, abs=0.03)
    assert benefit.unknown_local_efficiency == pytest.approx(0.95, abs=0.02)
    assert benefit.unknown_remote_efficiency == pytest.approx(0.75, abs=0.02)
    assert benefit.job_read_rate == pytest.approx(2.4e6, rel=0.01)
    assert benefit.model


def test_a_farther_origin_is_never_proposed_as_a_better_one(tmp_path: Path) -> None:
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    both = Planted("remote", 400, 0.7, origin="x.ch"), Planted("remote", 400, 0.9)
    plant(Tables(settings.tables.root), both)
    (tmp_path / "site.toml").write_text(refit.run(settings, DAYS).toml)
    near, far = Settings.load(tmp_path / "site.toml", env={}).benefit.points
    assert near.cpu_efficiency == far.cpu_efficiency == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    "changed",
    [
        *({"cpu_s": 50.0, "wall_s": wall_s} for wall_s in (1.0, 0.0)),
        *({"cpu_s": 1e-6}, {"failed": True}, {"read_bytes": 2**50}, {"read_bytes": 3}),
    ],
)
def test_what_is_not_plausible_is_not_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    with_reads = job_records._job

    def lying(one: Planted, *args: Any, **others: Any) -> Any:
        job, reads = with_reads(one, *args, **others)
        return (job | changed if one.place == "remote" or "read_bytes" in changed else job), reads

    monkeypatch.setattr(job_records, "_job", lying)
    plant(Tables(settings.tables.root), (Planted("remote", 400, 0.8), Planted("miss", 400, 0.6)))
    proposed = refit.run(settings, DAYS)
    of_times = {"points", "unknown_remote_efficiency", "miss_slowdown"}
    assert set(proposed.missing) >= ({"job_read_rate"} if "read_bytes" in changed else of_times)
    (tmp_path / "site.toml").write_text(proposed.toml)
    assert Settings.load(tmp_path / "site.toml", env={}).benefit.model


def test_one_user_with_most_of_the_hours_is_told_and_a_job_with_two_starts_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    of_nobody = job_records._job

    def by_one(one: Planted, *args: Any, **others: Any) -> Any:
        job, reads = of_nobody(one, *args, **others)
        event_id = "e" if one.place == "hit" else job["event_id"]
        return job | {"user": "0123456789abcdef", "event_id": event_id}, reads

    monkeypatch.setattr(job_records, "_job", by_one)
    plant(Tables(settings.tables.root), (Planted("remote", 200, 0.8), Planted("hit", 200, 0.8)))
    assert "one user or task took 100 % of the core hours" in refit.run(settings, DAYS).toml
    assert efficiency.run(settings, DAYS).jobs == 201


def test_what_too_few_tasks_show_is_not_proposed(tmp_path: Path) -> None:
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    few = tuple(Planted(jobs.place, 100, 0.8) for jobs in PLANTED[1:])
    plant(Tables(settings.tables.root), few, per_task=50)
    proposed = refit.run(settings, DAYS)
    efficiencies = {"unknown_remote_efficiency", "unknown_local_efficiency"}
    assert set(proposed.missing) == {"points", "hit_points", "miss_slowdown", "job_read_rate"} | efficiencies
    (tmp_path / "site.toml").write_text(proposed.toml)
    benefit = Settings.load(tmp_path / "site.toml", env={}).benefit
    assert benefit.miss_slowdown == settings.benefit.miss_slowdown
