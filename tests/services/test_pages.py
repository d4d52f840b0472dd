"""The pages in a real browser: they open without an error, plots are there, nothing is wider than a phone."""

from pathlib import Path
from typing import Any

import pytest
from cachecast_main import asked
from job_records import plant

from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.answer import EvaluationAnswer, export_evaluation

pytestmark = pytest.mark.service

WIDTHS = (360, 1200)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study")
    asked("workload", "--scenario", "mwt2", "--accesses", "20000", "--out", out / "trace")
    answer = asked(
        "report", "--trace", out / "trace", "--capacity-fraction", "0.02", "--out", out / "study.html"
    )
    assert answer["accesses"] == pytest.approx(20_000, rel=0.01)
    return out / "study.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_study_opens_without_a_fault(browser: Any, study: Path, width: int) -> None:
    assert browser.faults(study, width=width) == []
    assert browser.ask("document.querySelectorAll('.plot > svg').length") == 10
    assert browser.ask("document.querySelectorAll('h2').length") == 11
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
    export_evaluation(answer, out)
    return out


@pytest.mark.parametrize("width", WIDTHS)
def test_an_evaluation_opens_without_a_fault(browser: Any, walk: Path, width: int) -> None:
    assert browser.faults(walk, width=width) == []
    assert browser.ask("document.querySelectorAll('.plot > svg').length") == 1
    assert browser.ask("document.querySelectorAll('.answer').length") == 4


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of each other kind, by name in a folder."""
    out = tmp_path_factory.mktemp("small")
    trace = out / "trace"
    asked("workload", "--scenario", "site", "--accesses", "6000", "--out", trace)
    plant(Tables(str(out / "tables")), per_task=10)
    days = ("--from", "2026-03-01", "--to", "2026-03-14")
    of_trace = ("--trace", trace, "--capacity-fraction", "0.05,0.1")
    asked("replay", *of_trace, "--policy", "lru,s3fifo", "--out", out / "replay.html")
    asked("curve", *of_trace, "--out", out / "curve.html")
    asked("storage", "--trace", trace, "--capacity", "200GB,1TB", "--out", out / "storage.html")
    asked("efficiency", "--tables", out / "tables", *days, "--out", out / "jobs.html")
    asked("worth-it", "--trace", trace, "--capacity", "300GB", "--out", out / "worth.html")
    return out


SMALLEST_LABEL_PX = (
    "Math.min(...[...document.querySelectorAll('.plot .tick text')].map(e => "
    "parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getBoundingClientRect().width"
    " / e.ownerSVGElement.viewBox.baseVal.width))"
)


@pytest.mark.parametrize("name", ["replay", "curve", "storage", "jobs", "worth"])
def test_every_page_opens_on_a_desk_on_a_phone_in_the_dark_and_on_paper(
    browser: Any, small: Path, name: str
) -> None:
    for width, is_dark in ((1400, False), (390, False), (1400, True)):
        browser.in_the_dark(is_dark)
        try:
            assert browser.faults(small / f"{name}.html", width=width) == []
        finally:
            browser.in_the_dark(False)
    browser.open(small / f"{name}.html", width=390)
    assert browser.ask(SMALLEST_LABEL_PX) >= 10
    answers = browser.ask("[...document.querySelectorAll('.answer')].map(e => e.innerText)")
    assert answers and all(answer.endswith(".") for answer in answers)


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
    faults = browser.faults(page, width=360)
    assert any(fault in line for line in faults), faults
