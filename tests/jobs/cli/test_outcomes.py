"""What `outcomes` shows: tables that have rows, and a line for those that have none."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from pathlib import Path

from typer.testing import CliRunner, Result

from features.schema import OUTCOMES, PLANS
from jobs.caches.steward_days import StewardDay, keep
from jobs.cli.main import app
from jobs.store.tables import Tables

KEY = ("2026-03-01", "2026-03-01T00:00:00Z", "xc1")
EARNED = {"item_id": "1", "did": "x:f", "action": "pin", "n_hits": 1}
EARNED |= {"bytes_saved": 5, "bytes_spent": 0, "bytes_wasted": 0, "first_hit_delay_s": 1.0}


def outcomes(folder: Path, rows: list[dict[str, object]] | None, *words: str) -> Result:
    """The command after `rows` were accounted; None: no plan was."""
    tables = Tables(str(folder / "tables"))
    if rows is not None:
        tables.replace_rows(OUTCOMES, rows, KEY)
        tables.replace_rows(PLANS, [], KEY)
    (folder / "site.toml").write_text(
        '[caches.xc1]\nname = "xc1"\nkind = "xcache"\nurl = "root://xc1"\ncapacity = "1TB"\n'
    )
    options = ["--cache", "xc1", "--conf", str(folder / "site.toml"), "--tables", tables.root]
    return CliRunner().invoke(app, ["outcomes", *options, *words])


def test_tables_without_rows_are_a_line_with_the_remedy(tmp_path: Path) -> None:
    lines = outcomes(tmp_path, []).stdout.splitlines()
    assert all(line.strip() for line in lines)
    assert lines == [
        "plans: none of them completed an item; see `cachecast push --status`",
        "days against LRU: none judged; run `cachecast outcomes --cache xc1 --day …`",
    ]
    assert "model versions" in outcomes(tmp_path, [EARNED]).stdout


def test_days_are_checked(tmp_path: Path) -> None:
    assert "not a day: 'soon'" in str(outcomes(tmp_path, [], "--from", "soon").exception)


def test_days_of_a_steward_are_shown_without_any_plan(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "tables"))
    began = dt.datetime(2026, 3, 1, 6, tzinfo=dt.UTC)
    first = StewardDay(began, 3600, "lru, learned", "cachecast-emea/1", 50, 70, 3, 30)
    keep(tables, first, cache="xc1", day="2026-03-01")
    keep(tables, first, cache="other", day="2026-03-01")
    keep(tables, dataclasses.replace(first, watched_s=7200), cache="xc1", day="2026-03-01")
    later = dataclasses.replace(
        first, started_at=began + dt.timedelta(hours=3), orders="lru", model_version=None
    )
    keep(tables, later, cache="xc1", day="2026-03-01")
    keep(tables, later, cache="xc1", day="2026-03-02")
    found = json.loads(outcomes(tmp_path, None, "--json", "--out", str(tmp_path / "page.html")).stdout)
    assert [day["day"] for day in found["steward"]] == ["2026-03-01", "2026-03-02"]
    assert found["steward"][0] == {
        "day": "2026-03-01",
        "orders": "lru, learned",
        "model_version": "cachecast-emea/1",
        "watched_s": 7200 + 3600,
        "wan_bytes": 100,
        "lru_wan_bytes": 140,
        "saved_wan_bytes": 40,
        "evicted_files": 6,
        "evicted_bytes": 60,
    }
    page = (tmp_path / "page.html").read_text().replace("\u00a0", " ")
    assert (
        "By its own count the steward saved 60 B of WAN traffic against plain LRU (28.6 %) on 2 days." in page
    )
    assert "days of the steward" in outcomes(tmp_path, None).stdout
