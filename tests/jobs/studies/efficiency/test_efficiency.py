"""Reads of jobs by place, and the efficiencies and settings that follow from them, as planted."""

import base64
import datetime as dt
import json
from pathlib import Path
from typing import Any

import job_records
import pyarrow as pa
import pytest
from access_rows import accesses
from job_records import PIC, Planted, plant
from monitoring import closing, fstream, opening, users
from pulls import pulled

from features.schema import ACCESSES, JOB_RECORDS, arrow_schema
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.studies.efficiency import efficiency
from jobs.studies.efficiency.reads import NOWHERE, JobSelection, jobs_with_places
from replay.study.benefit import Region

DAYS = JobSelection("2026-03-01", "2026-03-14")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.load(tables=str(tmp_path / "tables"), env={})


def test_pics_planted_efficiencies_are_recovered(settings: Settings, tmp_path: Path) -> None:
    plant(Tables(settings.tables.root))
    answer = efficiency.run(settings, DAYS, out=tmp_path / "page.html")
    assert (answer.jobs, answer.found_share, answer.shared_reads) == (4000, 1.0, 0)
    places = {group.place: group for group in answer.by_place}
    assert set(places) == {planted.place for planted in PIC}
    for planted in PIC:
        group = places[planted.place]
        assert group.jobs == planted.jobs
        assert group.tasks == 50
        assert group.cpu_efficiency_share == pytest.approx(planted.efficiency, abs=0.02)
        assert group.cpu_efficiency_lower_share is not None and group.cpu_efficiency_upper_share is not None
        assert group.cpu_efficiency_lower_share < planted.efficiency < group.cpu_efficiency_upper_share
        assert 0.012 < group.cpu_efficiency_upper_share - group.cpu_efficiency_lower_share < 0.04
        assert group.failed_share == pytest.approx(planted.failed, abs=0.02)
    assert "a CPU efficiency of 9" in (tmp_path / "page.html").read_text()


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
    lines = [json.dumps({"remote": "h:1", "data": base64.b64encode(sent).decode()}) for sent in datagrams]
    (tmp_path / "packets.jsonl").write_text("\n".join(lines))
    tables = Tables(settings.tables.root)
    for source, path in (("htcondor_history", history), ("xrootd_fstream", tmp_path / "packets.jsonl")):
        pulled(tables, source, path, salt="pepper")
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
            sum(group.jobs * (group.failed_share or 0) for group in answer.by_place),
            sum(group.core_hours - group.wasted_core_hours for group in answer.by_place),
            next(group.cpu_efficiency_share for group in answer.by_place if group.place == "hit"),
        )
        for answer in (before, after)
    ]
    assert shares[1] == pytest.approx((shares[0][0] + 100, *shares[0][1:]))
    assert "110 of 550" in (tmp_path / "page.html").read_text().replace("\u00a0", " ")


def test_a_job_with_two_starts_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    job_of = job_records._job

    def doubled(planted: Planted, *args: Any, **others: Any) -> Any:
        job, reads = job_of(planted, *args, **others)
        return job | {"event_id": "e" if planted.place == "hit" else job["event_id"]}, reads

    monkeypatch.setattr(job_records, "_job", doubled)
    plant(Tables(settings.tables.root), (Planted("remote", 200, 0.8), Planted("hit", 200, 0.8)))
    assert efficiency.run(settings, DAYS).jobs == 201


AT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
REGIONS = (Region("own", ("*.store.org",), 0.0), Region("far", ("*.gov",), 150.0))


def places(tmp_path: Path, jobs: list[dict[str, Any]], reads: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """(place, region, bytes by place) of each job, by its id."""
    tables = Tables(str(tmp_path / "tables"))
    of_job = {
        **{"task": "t", "started_at": AT, "ended_at": AT + HOUR, "known_at": AT, "cores": 1, "cpu_s": 1.0},
        **{"wall_s": 2.0, "failed": False, "source": "s", "day": "2026-03-01", "site": "EDGE"},
        "node": "wn1.edge.org",
    }
    schema = arrow_schema(JOB_RECORDS).append(pa.field("day", pa.string()))
    full = [of_job | {"event_id": str(k)} | job for k, job in enumerate(jobs)]
    rows = [{name: job.get(name) for name in schema.names} for job in full]
    tables.replace_arrow(JOB_RECORDS, pa.Table.from_pylist(rows, schema))
    same = {"accessed_at": AT + HOUR / 2, "known_at": AT, "read_bytes": 100, "origin": "se.fnal.gov"}
    tables.replace_arrow(ACCESSES, accesses(reads, **same))
    with jobs_with_places(tables, JobSelection("2026-03-01", "2026-03-01"), REGIONS) as database:
        sums = "local_bytes, hit_bytes, miss_bytes, remote_bytes"
        return database.sql(f"SELECT place, region, {sums} FROM jobs ORDER BY job").fetchall()


CACHED: dict[str, Any] = {"cache": "xc", "bytes_hit": 0, "bytes_missed": 0}


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ([], (NOWHERE, "unknown", 0, 0, 0, 0)),
        ([{"job": "a"}], ("remote", "far", 0, 0, 0, 100)),
        ([{"job": "a", "origin": "x.store.org:1094"}], ("local", "own", 100, 0, 0, 0)),
        ([{"job": "a", "origin": "se.edge.org:1094"}], ("local", "unknown", 100, 0, 0, 0)),
        ([{"job": "a", "origin": "edge.org"}], ("local", "unknown", 100, 0, 0, 0)),
        ([{"job": "a", "origin": "EDGE_DISK", "site": "EDGE_DISK"}], ("local", "unknown", 100, 0, 0, 0)),
        ([{"job": "a", "origin": "se.ledge.org"}], ("remote", "unknown", 0, 0, 0, 100)),
        (
            [{"job": "a", "origin": None, "read_bytes": None, "size_bytes": 7}],
            ("remote", "unknown", 0, 0, 0, 7),
        ),
        ([{"job": "b"}], (NOWHERE, "unknown", 0, 0, 0, 0)),
        ([{"job": "a", "accessed_at": AT - HOUR}], (NOWHERE, "unknown", 0, 0, 0, 0)),
        ([{"job": "a"}, CACHED | {"bytes_hit": 100}], ("hit", "far", 0, 100, 0, 0)),
        ([{"job": "a"}, CACHED | {"bytes_missed": 100}], ("miss", "far", 0, 0, 100, 0)),
        ([{"job": "a"}, CACHED | {"bytes_hit": 70, "bytes_missed": 30}], ("mixed", "far", 0, 70, 30, 0)),
        (
            [{"job": "a"}, CACHED | {"bytes_hit": 100, "name": "/g", "did": "g"}],
            ("remote", "far", 0, 0, 0, 100),
        ),
        (
            [{"job": "a"}, CACHED | {"bytes_hit": 9, "accessed_at": AT + 3 * HOUR}],
            ("remote", "far", 0, 0, 0, 100),
        ),
        # What was read ahead, or of sparse reads the rest of blocks, no job has read.
        ([CACHED | {"job": "a", "bytes_missed": 500}], ("miss", "far", 0, 0, 100, 0)),
        # A hit names no origin: the file's last fetch does.
        (
            [
                CACHED | {"job": "a", "bytes_hit": 100, "origin": None},
                CACHED | {"cache": "other", "bytes_missed": 100, "accessed_at": AT - 5 * HOUR},
            ],
            ("hit", "far", 0, 100, 0, 0),
        ),
        (
            [CACHED | {"job": "a", "bytes_hit": None, "bytes_missed": None, "origin": None}],
            (NOWHERE, "unknown", 0, 0, 0, 0),
        ),
        ([CACHED | {"bytes_hit": 100}], (NOWHERE, "unknown", 0, 0, 0, 0)),
    ],
)
def test_the_place_of_a_job_follows_from_its_reads(
    tmp_path: Path, reads: list[dict[str, Any]], expected: tuple[Any, ...]
) -> None:
    assert places(tmp_path, [{"job": "a"}], reads) == [expected]


def test_a_job_that_nothing_names_is_found_by_its_files_time_and_site(tmp_path: Path) -> None:
    jobs: list[dict[str, Any]] = [
        {"job": "a", "files": ["/f"]},
        {"job": "b", "files": ["/f"], "site": "OTHER"},
        {"job": "c", "files": ["cms:/f"], "started_at": AT + 5 * HOUR, "ended_at": AT + 6 * HOUR},
    ]
    later = {"accessed_at": AT + 5 * HOUR, "bytes_hit": 40, "bytes_missed": 0, "cache": "xc"}
    rows = places(tmp_path, jobs, [{"site": "EDGE"}, later])
    assert [row[0] for row in rows] == ["remote", NOWHERE, "hit"]


def test_a_caches_record_of_a_file_that_two_jobs_hold_open_is_shared(tmp_path: Path) -> None:
    jobs: list[dict[str, Any]] = [{"job": "a"}, {"job": "b"}]
    reads: list[dict[str, Any]] = [
        {"job": "a"},
        {"job": "b"},
        CACHED | {"bytes_hit": 200, "closed_at": AT + HOUR},
    ]
    assert places(tmp_path, jobs, reads) == [("hit", "far", 0, 100, 0, 0)] * 2


def test_reads_of_a_file_that_too_many_jobs_read_at_once_are_nobodys(tmp_path: Path) -> None:
    job: dict[str, Any] = {"job": "a", "files": ["/hot", "/own"]}
    reads = [CACHED | {"name": "/hot", "bytes_hit": 7} for _ in range(1000)]
    own = CACHED | {"name": "/own", "bytes_missed": 5}
    several = places(tmp_path / "some", [job] * 1000, [*reads, own])
    crowded = places(tmp_path / "many", [job] * 1001, [*reads, own])
    assert (several[0][0], several[0][3]) == ("hit", 7)
    assert (crowded[0][0], crowded[0][3]) == ("miss", 0)


def test_a_failed_job_of_unknown_times_has_the_reads_that_name_it_and_no_others(tmp_path: Path) -> None:
    early = {"failed": True, "known_at": AT + HOUR, "cpu_s": None, "wall_s": None, "cores": None}
    jobs: list[dict[str, Any]] = [
        early | {"job": "a", "started_at": None, "ended_at": None},
        early | {"job": "b", "ended_at": None},
        early | {"job": "c", "started_at": None, "ended_at": None, "files": ["/f"], "kind": "rare"},
    ]
    reads: list[dict[str, Any]] = [{"job": "a"}, {"job": "b", "origin": "x.store.org"}, {"name": "/f"}]
    rows = places(tmp_path, jobs, [*reads, {"job": "a", "accessed_at": AT + 2 * HOUR}])
    assert [row[0] for row in rows] == ["remote", "local", NOWHERE]
    assert rows[0][-1] == 100
