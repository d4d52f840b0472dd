"""The report: one file, whatever the names in it, with the answer first; and what caches recorded."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from access_rows import accesses
from html_page import Page
from replay_rows import CAPACITY_BYTES, replay_row

from features.results import MODEL_METRICS, RELIABILITY, REPLAY_DAYS, REPLAY_FILLS, REPLAYS
from features.schema import ACCESSES, FILES, OUTCOMES, PLANS, RECEIPTS, arrow_schema
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.operator.site_report import build
from jobs.operator.site_report.recorded import recorded_section
from replay.study.benefit import Region

EVIL = "/store/<script>alert(1)</script>"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = Tables(str(tmp_path))
    key = ("2026-03-01", "default")
    rows = [replay_row(policy, wan) for policy, wan in (("lru", 100), ("lru+plan", 80), ("bound", 50))]
    tables.replace_rows(REPLAYS, rows, key)
    same = {"policy": "lru", "capacity_bytes": CAPACITY_BYTES}
    day = same | {"on_day": "2026-03-01", "hits": 3, "misses": 4, "hit_bytes": 30, "wan_bytes": 40}
    tables.replace_rows(REPLAY_DAYS, [day], key)
    at = {"at": dt.datetime(2026, 3, 1, tzinfo=dt.UTC)}
    tables.replace_rows(REPLAY_FILLS, [same | at | {"used_bytes": 10}], key)
    when = ("2026-03-01", "2026-03-01T00:00:00Z", "default")
    metric = {"model": "lightgbm", "horizon_s": 43200, "auc": 0.9, "average_precision": 0.5, "n_rows": 9}
    tables.replace_rows(MODEL_METRICS, [metric], when)
    bin_ = {"model": "lightgbm", "horizon_s": 43200, "bin": 0, "predicted": 0.5, "observed": 0.4, "n_rows": 9}
    tables.replace_rows(RELIABILITY, [bin_], when)
    item = {"item_id": "i", "did": f"cms:{EVIL}", "name": EVIL, "action": "pin", "rank": 1, "value": 1.0}
    more = {
        "cost_bytes": 0,
        "size_bytes": 5,
        "probability": 0.5,
        "reason": "likely & <near>",
        "expires_at": at["at"],
    }
    tables.replace_rows(PLANS, [item | more], (*when[:2], "xc1"))
    return tables


def test_the_page_is_well_formed_and_its_names_are_harmless(tables: Tables, tmp_path: Path) -> None:
    build.run(Settings.load(env={}, tables=tables.root), out=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    tags = Page(page)
    assert tags.open == []
    assert page.count('class="plot"') == 3
    assert tags.seen.count("script") == 3 + 1  # the points of each plot, and ours
    assert "&lt;script&gt;alert(1)" in page
    assert "likely &amp; &lt;near&gt;" in page


def test_the_report_of_a_region_is_of_no_other_in_the_same_tables(tables: Tables, tmp_path: Path) -> None:
    env = {"CACHECAST_REGION__NAME": "a"}
    tables.replace_rows(REPLAYS, [replay_row("lru", 7 * 10**12)], ("2026-02-01", "a"))
    build.run(Settings.load(env=env, tables=tables.root), out=tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert "7 TB" in page.text and "lru+plan" not in page.cells and "lightgbm" not in page.cells


def test_what_was_pushed_is_shown_with_what_it_earned_though_others_were_pushed_since(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later = (
        ("2026-03-01", "2026-03-01T00:00:00Z", "xc1"),
        ("2026-03-03", "2026-03-03T00:00:00Z", "xc2"),
    )
    items = [{"item_id": name, "did": f"cms:/{name}", "action": "pin"} for name in "ab"]
    done = {"state": "done", "attempts": 1, "bytes": 0, "seconds": 1.0, "updated_at": at(1, 0)}
    tables.replace_rows(RECEIPTS, [item | done for item in items], first)
    tables.replace_rows(RECEIPTS, [items[0] | done | {"item_id": "c", "state": "failed"}], later)
    earned = {"n_hits": 3, "bytes_spent": 0, "bytes_wasted": 0, "use": "read"}
    earned_by_size = [item | earned | {"bytes_saved": n} for item, n in zip(items, (1000, 4000), strict=True)]
    tables.replace_rows(OUTCOMES, earned_by_size, first)
    monkeypatch.setattr(build, "OUTCOME_ROWS", 1)
    build.run(Settings.load(env={}, tables=tables.root), out=tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert "The plan Of cache xc1 at 2026-03-01T00:00:00Z." in page.text
    assert "Of cache xc1 at 2026-03-01T00:00:00Z. Receipts: 2 done." in page.text and "5 kB" in page.cells
    assert "The best of the 2 files" in page.text and "cms:/b" in page.cells and "cms:/a" not in page.cells


REGIONS = (Region("near", ("*.es",), 9.0),)


def plant(tmp_path: Path, reads: list[dict[str, Any]]) -> Tables:
    tables = Tables(str(tmp_path))
    rows = [{"did": f"cms:/{number}", "bytes_missed": 0} | read for number, read in enumerate(reads)]
    tables.replace_arrow(ACCESSES, accesses(rows, source="xcache_gstream", cache="a"))
    return tables


def at(day: int, hour: int) -> dt.datetime:
    return dt.datetime(2026, 3, day, hour, tzinfo=dt.UTC)


READS: list[dict[str, Any]] = [
    {"accessed_at": at(1, 5), "bytes_hit": 10, "origin": "se.pic.es:1094"},
    {"accessed_at": at(1, 5), "bytes_hit": 1, "bytes_missed": 9, "n_reads": 2},
    {"accessed_at": at(3, 7), "bytes_hit": 0, "bytes_missed": 4, "cache": "b", "source": "xcache_cinfo"},
    {"accessed_at": at(3, 7), "bytes_hit": 99, "source": "xcache_cinfo"},
    {"accessed_at": at(3, 8), "bytes_hit": 5},
    {"accessed_at": at(3, 8), "bytes_hit": 0},
    {"accessed_at": at(3, 8), "bytes_hit": 7, "source": "cms_aaa"},
    {"accessed_at": at(3, 8), "bytes_hit": None, "bytes_missed": None},
]


def test_each_read_counts_once_in_reads_and_bytes_by_cache_and_origin(tmp_path: Path) -> None:
    section = recorded_section(plant(tmp_path, READS), REGIONS)
    columns = ("reads", "hit_ratio", "read_bytes", "missed_bytes")
    assert {row["of"]: tuple(row[name] for name in columns) for row in section.rows} == {
        "cache a": (4, 0.5, 25, 9),
        "cache b": (1, 0.0, 4, 4),
        "origin near": (1, 1.0, 10, 0),
        "origin unknown": (4, 0.25, 19, 13),
    }
    figures = {figure.caption: figure.plot for figure in section.figures}
    series = {
        line.label: [point.y for point in line.points]
        for line in figures["Hits and misses per day, all caches, in reads"].series
    }
    assert series["hits"] == [1, 0, 1]
    assert series["misses"] == [2, 0, 1]
    assert series["hits, two-week mean"] == [1, 0.5, 2 / 3]
    of_bytes = figures["Hits and misses per hour, all caches, in bytes"].series
    hours = {point.text: point.y for line in of_bytes if line.label == "misses" for point in line.points}
    assert {text: y for text, y in hours.items() if y} == {
        "9 B, 2026-03-01T05:00:00Z": 9,
        "4 B, 2026-03-03T07:00:00Z": 4,
    }
    assert len(hours) == 3 * 24
    assert "Hits and misses per day, a, in bytes" in figures
    assert "Hits and misses per day, b, in bytes" not in figures  # one bar is no plot


@pytest.mark.parametrize("far_ms", [90.0, None])
def test_hits_have_the_origin_of_the_last_fetch_and_unknown_reads_are_in_no_ratio(
    tmp_path: Path, far_ms: float | None
) -> None:
    cold = {"bytes_hit": 0, "bytes_missed": 6, "read_bytes": 4}
    warm = {"bytes_hit": 4, "bytes_missed": 0, "read_bytes": 4}
    far, near = {"origin": "far.org:1094"}, {"origin": "SE.PIC.ES:1094"}
    reads: list[dict[str, Any]] = [
        {"accessed_at": at(1, 1), "did": "x", **cold, **near},  # more than two weeks before
        {"accessed_at": at(20, 1), "did": "x", **warm},
        {"accessed_at": at(20, 1), "did": "x", "cache": "b", **warm},  # fetched by the other cache only
        {"accessed_at": at(20, 2), "did": "x", **cold, **far},
        {"accessed_at": at(20, 3), "did": "x", **warm},
        {"accessed_at": at(20, 4), "did": "listed", **warm},
        {"accessed_at": at(20, 4), "did": "nowhere", **warm},
        {"accessed_at": at(20, 5), "did": "x", "bytes_hit": None, "bytes_missed": None, "read_bytes": 9},
    ]
    tables = plant(tmp_path, reads)
    listed = {"did": "listed", "scope": "x", "name": "x", "size_bytes": 4, "known_at": at(1, 1)}
    listed |= {"origins": ["far.org", "T1_ES.es"]}
    tables.replace_arrow(FILES, pa.Table.from_pylist([listed], arrow_schema(FILES)))
    section = recorded_section(tables, (Region("far", ("*.org",), far_ms), *REGIONS))
    by_name = {row["of"]: row for row in section.rows}
    columns = ("files", "reads", "hit_ratio", "unknown_reads", "read_bytes", "missed_bytes")
    assert {of: tuple(row[name] for name in columns) for of, row in by_name.items()} == {
        "cache a": (3, 5, 0.8, 1, 20, 6),
        "cache b": (1, 1, 1.0, 0, 4, 0),
        "origin far": (1, 2, 0.5, 1, 8, 6),
        "origin near": (2, 3, 1.0, 0, 12, 0),
        "origin unknown": (1, 1, 1.0, 0, 4, 0),
    }
    near_shares = [by_name["origin near"][f"of_{of}_share"] for of in ("files", "reads", "bytes")]
    assert near_shares == [2 / 4, 3 / 6, 12 / 24]
    assert by_name["cache a"]["byte_hit_ratio"] == 16 / 20


def test_records_of_old_and_of_years_to_come_are_not_shown_and_none_are_no_section(tmp_path: Path) -> None:
    assert recorded_section(Tables(str(tmp_path / "empty")), REGIONS) is None
    assert recorded_section(plant(tmp_path / "others", READS[6:7]), REGIONS) is None
    wrong = [{**READS[0], "accessed_at": dt.datetime(year, 3, 1, tzinfo=dt.UTC)} for year in (2025, 2999)]
    section = recorded_section(plant(tmp_path / "old", [*wrong, *READS]), REGIONS)
    (series, *_) = section.figures[0].plot.series
    assert len(series.points) == 3
