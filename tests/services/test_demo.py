"""The demo: the whole loop on a generated month against a real XCache, real Spark and MLflow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from features.schema import OUTCOMES, PLANS, RECEIPTS
from jobs.store.tables import Tables

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("demo") / "out"
    command = [
        sys.executable,
        "-c",
        "from jobs.cli.main import main; main()",
        "demo",
        "--json",
        "--out",
        str(out),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert answer.returncode == 0, answer.stderr[-2000:]
    told: dict[str, Any] = json.loads(answer.stdout)
    return out, told


def test_the_plan_saves_wan_bytes_net_of_what_it_fetched(demo: tuple[Path, dict[str, Any]]) -> None:
    rows = demo[1]["replays"]
    assert len(rows) == 3 * 4
    saved = []
    for capacity in {row["capacity_bytes"] for row in rows}:
        by = {row["policy"]: row for row in rows if row["capacity_bytes"] == capacity}
        assert by["bound"]["wan_bytes"] <= by["clairvoyant"]["wan_bytes"] < by["lru"]["wan_bytes"]
        assert by["bound"]["wan_bytes"] <= by["lru+plan"]["wan_bytes"]
        gap = by["lru"]["wan_bytes"] - by["bound"]["wan_bytes"]
        saved.append(by["lru"]["wan_bytes"] - by["lru+plan"]["wan_bytes"])
        assert by["lru+plan"]["byte_gap_closed"] == pytest.approx(saved[-1] / gap)
    # The month moves with the day of the run; at the smallest cache the cycle is too long to be sure to pay.
    assert sum(saved) > 0
    assert max(saved) > 0.05 * rows[0]["wan_bytes"]


def test_the_models_beat_the_baselines_on_days_they_have_not_seen(demo: tuple[Path, dict[str, Any]]) -> None:
    models = demo[1]["models"]
    for within in ("12h", "2d"):
        auc = {row["model"]: row["auc"] for row in models if row["within"] == within}
        assert auc["lightgbm"] > max(auc["recency"], auc["decayed_frequency"])
    assert sum(row["serves"] for row in models) == 2


def test_a_real_cache_did_what_the_plan_asked_and_nothing_twice(demo: tuple[Path, dict[str, Any]]) -> None:
    out, told = demo
    tables = Tables(str(out / "tables"))
    plan, receipts = (tables.read_arrow(table).to_pylist() for table in (PLANS, RECEIPTS))
    assert {row["item_id"] for row in receipts} == {row["item_id"] for row in plan}
    assert [(row["action"], row["state"], row["error"]) for row in receipts if row["state"] != "done"] == []
    assert {row["action"] for row in receipts} >= {"prefetch", "pin"}
    # A file that the cache's own purge took before its eviction is confirmed gone by the server.
    assert all(row["confirmed_by"] == "cinfo" or row["action"] == "evict" for row in receipts)
    assert all(row["reason"] for row in plan)
    second = told["second push"]
    assert (second["pushed"], second["already_done"], second["bytes_fetched"]) == (0, 0, 0)
    assert second["pins_renewed"] > 0
    assert told["purge"]["pinned_files"] > 0
    assert told["purge"]["pinned_files_lost"] == 0


def test_what_was_pushed_is_accounted_from_the_caches_own_records(demo: tuple[Path, dict[str, Any]]) -> None:
    out, told = demo
    earned = Tables(str(out / "tables")).read_arrow(OUTCOMES).to_pylist()
    total = told["outcomes"]
    assert len(earned) == total["prefetched_files"] + total["pinned_files"] > 0
    assert sum(row["bytes_saved"] for row in earned) == total["bytes_saved"] > 0
    assert total["bytes_spent"] == told["push"]["bytes_fetched"] > 0
    assert total["bytes_wasted"] <= total["bytes_spent"]
    assert told["records"]["n_rejected"].get("our own prefetch or touch", 0) > 0


def test_it_ends_with_two_caches_side_by_side(demo: tuple[Path, dict[str, Any]]) -> None:
    both = demo[1]["side by side"]
    assert both["missing"] is None
    for side in (both["plain"], both["steward"]):
        assert side["seen"]["reads"] > 0 and side["seen"]["failed_reads"] == 0
    assert {one.name for one in (demo[0] / "side-by-side").iterdir()} == {"plain", "steward"}


def test_the_page_is_whole_and_asks_the_network_for_nothing(demo: tuple[Path, dict[str, Any]]) -> None:
    page = (demo[0] / "report.html").read_text()
    capacities = {row["capacity_bytes"] for row in demo[1]["replays"]}
    assert page.count('class="plot"') == 2 + 2 * len(capacities)
    assert "% of the way to the bound" in page
    assert "src=" not in page
    assert page.count("<script>") == 1
    assert not [link for link in page.split('href="')[1:] if not link.startswith(("#", "data:,"))]


@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_opens_in_a_real_browser_without_a_fault(
    demo: tuple[Path, dict[str, Any]], browser: Any, width: int
) -> None:
    assert browser.faults(demo[0] / "report.html", width=width) == []


def test_every_step_was_timed(demo: tuple[Path, dict[str, Any]]) -> None:
    assert list(demo[1]["seconds"]) == [
        *("access records", "features", "training", "predictions", "replay"),
        *("plan", "push", "outcomes", "report", "side by side"),
    ]
