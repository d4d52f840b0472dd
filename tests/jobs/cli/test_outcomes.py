"""What `outcomes` shows: tables that have rows, and a line for those that have none."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from features.schema import OUTCOMES, PLANS
from jobs.cli.main import app
from jobs.store.tables import Tables

KEY = ("2026-03-01", "2026-03-01T00:00:00Z", "xc1")
EARNED = {"item_id": "1", "did": "x:f", "action": "pin", "n_hits": 1}
EARNED |= {"bytes_saved": 5, "bytes_spent": 0, "bytes_wasted": 0, "first_hit_delay_s": 1.0}


def outcomes(folder: Path, rows: list[dict[str, object]], *words: str) -> Result:
    tables = Tables(str(folder / "tables"))
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
