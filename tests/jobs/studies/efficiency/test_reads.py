from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from features.schema import ACCESSES, JOB_RECORDS, Table, arrow_schema
from jobs.ground.store.tables import Tables
from jobs.studies.efficiency.reads import NOWHERE, JobSelection, jobs_with_places
from replay.study.benefit import Region

AT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
REGIONS = (Region("own", ("*.store.org",), 0.0), Region("far", ("*.gov",), 150.0))


def fill(tables: Tables, table: Table, rows: list[dict[str, Any]], base: dict[str, Any]) -> None:
    schema = arrow_schema(table).append(pa.field("day", pa.string()))
    full = [
        {name: ({**base, "event_id": str(k)} | row).get(name) for name in schema.names}
        for k, row in enumerate(rows)
    ]
    tables.replace_arrow(table, pa.Table.from_pylist(full, schema))


def places(tmp_path: Path, jobs: list[dict[str, Any]], reads: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """(place, region, bytes by place) of each job, by its id."""
    tables = Tables(str(tmp_path / "tables"))
    of_job = {
        **{"task": "t", "started_at": AT, "ended_at": AT + HOUR, "known_at": AT, "cores": 1, "cpu_s": 1.0},
        **{"wall_s": 2.0, "failed": False, "source": "s", "day": "2026-03-01", "site": "EDGE"},
        "node": "wn1.edge.org",
    }
    of_read = {
        **{"did": "cms:/f", "scope": "cms", "name": "/f", "accessed_at": AT + HOUR / 2, "known_at": AT},
        **{"n_reads": 1, "source": "s", "day": "2026-03-01", "read_bytes": 100, "origin": "se.fnal.gov"},
    }
    fill(tables, JOB_RECORDS, jobs, of_job)
    fill(tables, ACCESSES, reads, of_read)
    with jobs_with_places(tables, JobSelection("2026-03-01", "2026-03-01"), REGIONS) as database:
        told = "local_bytes, hit_bytes, miss_bytes, remote_bytes"
        return database.sql(f"SELECT place, region, {told} FROM jobs ORDER BY job").fetchall()


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
    found = places(tmp_path, jobs, [{"site": "EDGE"}, later])
    assert [row[0] for row in found] == ["remote", NOWHERE, "hit"]


def test_rare_kinds_of_work_are_one(tmp_path: Path) -> None:
    many: list[dict[str, Any]] = [{"job": str(k), "kind": f"k{k}", "wall_s": 1000.0 - k} for k in range(30)]
    tables = Tables(str(tmp_path / "tables"))
    places(tmp_path, [*many, {"job": "none", "kind": None}], [])
    with jobs_with_places(tables, JobSelection("2026-03-01", "2026-03-01"), REGIONS) as database:
        counts = dict(database.sql("SELECT kind, count(*) FROM jobs GROUP BY kind").fetchall())
    assert counts == {f"k{k}": 1 for k in range(20)} | {"others": 10, None: 1}


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
    found = places(tmp_path, jobs, [*reads, {"job": "a", "accessed_at": AT + 2 * HOUR}])
    assert [row[0] for row in found] == ["remote", "local", NOWHERE]
    assert found[0][-1] == 100
