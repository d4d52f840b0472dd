"""The pages in a real browser: they open without an error, plots are there, nothing is wider than a phone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from cachecast_main import asked
from placement_server import refresh, serving

from jobs.evaluate.evaluate import EvaluationAnswer
from jobs.report.export import export_evaluation

pytestmark = pytest.mark.service

WIDTHS = (360, 1200)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study")
    asked("workload", "--scenario", "mwt2", "--accesses", "20000", "--out", out / "trace")
    told = asked(
        "report", "--trace", out / "trace", "--capacity-fraction", "0.02", "--out", out / "study.html"
    )
    assert told["accesses"] == pytest.approx(20_000, rel=0.01)
    return out / "study.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_study_opens_without_a_fault(browser: Any, study: Path, width: int) -> None:
    assert browser.faults(study, width=width) == []
    assert browser.ask("document.querySelectorAll('.plot > svg').length") == 12
    assert browser.ask("document.querySelectorAll('h2').length") == 12
    assert browser.ask("document.querySelectorAll('.answer').length") == 5


def test_what_the_study_says_can_be_read(browser: Any, study: Path) -> None:
    browser.open(study, width=1200)
    text = browser.ask("document.body.innerText")
    assert "HITS" in text
    assert "read once" in text
    assert "HS06-hours" in text
    for useless in ("nan", "None", "undefined", "{{", "inf "):
        assert useless not in text, useless


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("walk") / "walk.html"
    policies = ["lru", "lru+challenger", "lru+s3fifo_counts", "lru+recency", "s3fifo", "clairvoyant", "bound"]
    rows = [
        {
            **{"policy": policy, "capacity_fraction": share, "cycle": "1h"},
            **{"hit_ratio": 0.5, "byte_hit_ratio": 0.4, "wan_bytes": 10**13 - n * 10**11},
            **{"prefetch_bytes": 10**10, "wasted_bytes": 10**9, "core_hours": None},
            **{"byte_gap_closed": n / 9, "byte_gap_closed_lower": n / 10, "byte_gap_closed_upper": n / 8},
        }
        for share in (0.05, 0.1, 0.2)
        for n, policy in enumerate(policies)
    ]
    answer = EvaluationAnswer("cachecast-emea/3", "2026-03-01", "2026-03-21", tuple(rows), ("a note",))
    export_evaluation(answer, out, title="A walk")
    return out


@pytest.mark.parametrize("width", WIDTHS)
def test_an_evaluation_opens_without_a_fault(browser: Any, walk: Path, width: int) -> None:
    assert browser.faults(walk, width=width) == []
    assert browser.ask("document.querySelectorAll('.plot > svg').length") == 1
    assert browser.ask("document.querySelectorAll('.answer').length") == 4


def test_a_page_can_be_read_in_the_dark(browser: Any, walk: Path) -> None:
    browser.in_the_dark(True)
    try:
        assert browser.faults(walk, width=1200) == []
        assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"
    finally:
        browser.in_the_dark(False)


EMPTY = '<svg width="300" height="0"></svg>'
BAD = {
    "Runtime.consoleAPICalled": "<script>console.error('broken')</script>",
    "Runtime.exceptionThrown": "<script>nothing.there()</script>",
    "asks for file:///elsewhere.css": '<link rel="stylesheet" href="/elsewhere.css">',
    "plot 'empty' is": f'<figure><div class="plot" aria-label="empty">{EMPTY}</div></figure>',
    "plot 'gone' is 0 × 0": '<figure><div class="plot" aria-label="gone"></div></figure>',
    "axe image-alt": '<img src="data:,">',
    "px wide on a screen of 360": '<div style="width: 900px">wide</div>',
}


@pytest.mark.parametrize("fault", BAD)
def test_a_fault_would_be_seen(browser: Any, tmp_path: Path, fault: str) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        '<!doctype html><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        + BAD[fault]
    )
    found = browser.faults(page, width=360)
    assert any(fault in line for line in found), found


def test_the_placement_services_pages_need_no_other_host(browser: Any, tmp_path: Path) -> None:
    refresh(tmp_path / "placement.db")
    with serving(tmp_path / "placement.db") as server:
        for path in ("/", "/docs"):
            browser.open(f"{server.url}{path}", width=1200)
            deadline = time.monotonic() + 30
            while "/serverRanges" not in browser.ask("document.body.innerText"):
                assert time.monotonic() < deadline, browser.complaints(server.url)
                time.sleep(0.1)
            assert browser.complaints(server.url) == []
