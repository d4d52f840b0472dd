from __future__ import annotations

from pathlib import Path
from typing import Any

import job_records
import pytest
from job_records import Planted, plant
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.studies.efficiency import efficiency, refit
from jobs.studies.efficiency.reads import JobSelection

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
    words = [
        "--from",
        DAYS.since,
        "--to",
        DAYS.until,
        "--tables",
        str(tables),
        "--conf",
        str(tmp_path / "far.toml"),
    ]
    printed = CliRunner().invoke(app, ["refit", *words], catch_exceptions=False).stdout
    (tmp_path / "site.toml").write_text(printed)
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
    plant(
        Tables(settings.tables.root),
        (Planted("remote", 400, 0.7, origin="x.ch"), Planted("remote", 400, 0.9)),
    )
    (tmp_path / "site.toml").write_text(refit.run(settings, DAYS).toml)
    near, far = Settings.load(tmp_path / "site.toml", env={}).benefit.points
    assert near.cpu_efficiency == far.cpu_efficiency == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"cpu_s": 50.0, "wall_s": 1.0}, {"points", "unknown_remote_efficiency", "miss_slowdown"}),
        ({"cpu_s": 50.0, "wall_s": 0.0}, {"points", "unknown_remote_efficiency", "miss_slowdown"}),
        ({"cpu_s": 1e-6}, {"points", "unknown_remote_efficiency", "miss_slowdown"}),
        ({"failed": True}, {"points", "unknown_remote_efficiency", "miss_slowdown"}),
        ({"read_bytes": 2**50}, {"job_read_rate"}),
        ({"read_bytes": 3}, {"job_read_rate"}),
    ],
)
def test_what_is_not_plausible_is_not_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], missing: set[str]
) -> None:
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    with_reads = job_records._job

    def lying(one: Planted, *args: Any, **others: Any) -> Any:
        job, reads = with_reads(one, *args, **others)
        return (job | changed if one.place == "remote" or "read_bytes" in changed else job), reads

    monkeypatch.setattr(job_records, "_job", lying)
    plant(Tables(settings.tables.root), (Planted("remote", 400, 0.8), Planted("miss", 400, 0.6)))
    found = refit.run(settings, DAYS)
    assert missing <= set(found.missing)
    (tmp_path / "site.toml").write_text(found.toml)
    assert Settings.load(tmp_path / "site.toml", env={}).benefit.model


def test_one_user_with_most_of_the_hours_is_told_and_a_job_with_two_starts_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    of_nobody = job_records._job

    def by_one(one: Planted, *args: Any, **others: Any) -> Any:
        job, reads = of_nobody(one, *args, **others)
        return job | {
            "user": "0123456789abcdef",
            "event_id": "e" if one.place == "hit" else job["event_id"],
        }, reads

    monkeypatch.setattr(job_records, "_job", by_one)
    plant(Tables(settings.tables.root), (Planted("remote", 200, 0.8), Planted("hit", 200, 0.8)))
    assert "one user or task took 100 % of the core hours" in refit.run(settings, DAYS).toml
    assert efficiency.run(settings, DAYS).jobs == 201


def test_what_too_few_tasks_show_is_not_proposed(tmp_path: Path) -> None:
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    plant(
        Tables(settings.tables.root), tuple(Planted(one.place, 100, 0.8) for one in PLANTED[1:]), per_task=50
    )
    found = refit.run(settings, DAYS)
    assert set(found.missing) == {
        *("points", "hit_points", "unknown_remote_efficiency", "unknown_local_efficiency", "miss_slowdown"),
        "job_read_rate",
    }
    (tmp_path / "site.toml").write_text(found.toml)
    assert (
        Settings.load(tmp_path / "site.toml", env={}).benefit.miss_slowdown == settings.benefit.miss_slowdown
    )
