"""The report: one file, whatever the names in it, with the answer first."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest
from html_page import Page

from features.common.errors import StaleInputError
from features.results import MODEL_METRICS, RELIABILITY, REPLAY_DAYS, REPLAY_FILLS, REPLAYS
from features.schema import PLANS
from jobs.ground.store.tables import Tables
from jobs.operator.site_report.build import build

WATERMARKS = (0.90, 0.95)
EVIL = "/store/<script>alert(1)</script>"


def replay_row(policy: str, wan: int, gap: float | None) -> dict[str, object]:
    numbers = dict.fromkeys(("requests", "hits", "bytes_requested", "prefetch_bytes"), 10)
    rest = dict.fromkeys(("wasted_bytes", "refetch_bytes", "peak_usage_bytes"), 1)
    ratios = {"hit_ratio": 0.5, "byte_hit_ratio": 0.5, "capacity_fraction": 0.1, "seconds": 0.1}
    row = {"policy": policy, "capacity_bytes": 50 * 10**12, "wan_bytes": wan, "byte_gap_closed": gap}
    return row | numbers | rest | ratios


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = Tables(str(tmp_path))
    key = ("2026-03-01", "default")
    tables.replace_rows(
        REPLAYS,
        [replay_row("lru", 100, 0.0), replay_row("lru+plan", 80, 0.4), replay_row("bound", 50, 1.0)],
        key,
    )
    same = {"policy": "lru", "capacity_bytes": 50 * 10**12}
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


def test_the_page_is_well_formed_and_its_names_are_harmless(tables: Tables) -> None:
    page = build(tables, watermarks=WATERMARKS)
    tags = Page(page)
    assert tags.open == []
    assert page.count('class="plot"') == 3
    assert tags.seen.count("script") == 3 + 1  # the points of each plot, and ours
    assert "&lt;script&gt;alert(1)" in page
    assert "likely &amp; &lt;near&gt;" in page


def test_plots_over_time_are_drawn_for_each_capacity_that_has_rows(tables: Tables) -> None:
    rows = [
        replay_row(policy, 100, 0.1) | {"capacity_bytes": size * 10**12}
        for policy in ("lru", "lru+plan")
        for size in (20, 50, 90)
    ]
    tables.replace_rows(REPLAYS, rows, ("2026-03-01", "default"))
    page = build(tables, watermarks=WATERMARKS)
    assert re.findall(r'<option value="(\d)"( selected)?>([^<]+)<', page) == [
        ("0", "", "20 TB"),
        ("1", " selected", "50 TB"),  # one capacity at a time
        ("2", "", "90 TB"),
    ]
    assert re.findall(r'<figure data-capacity="(\d)">', page) == ["1"]  # the fill level
    assert re.findall(r'<p class="answer" data-capacity="(\d)">', page) == ["0", "1", "2"]
    assert len(re.findall(r'<tr(?: data-kept)? data-capacity="\d">', page)) == 6
    assert re.findall(r'id="policy-\d" data-key="([^"]+)"', page) == ["lru", "lru+plan"]


def test_parts_without_tables_are_left_out_and_none_at_all_is_an_error(
    tmp_path: Path, tables: Tables
) -> None:
    with pytest.raises(StaleInputError, match="no table to report on"):
        build(Tables(str(tmp_path / "empty")), watermarks=WATERMARKS)
    assert "What was pushed" not in build(tables, watermarks=WATERMARKS)
