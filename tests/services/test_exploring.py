"""Pages that people explore, in a real browser: values, capacities, policies, and the keyboard alone."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.loop.evaluate.answer import EvaluationAnswer, export_evaluation
from jobs.pages import plots
from jobs.pages.page import Capacities, Figure, Section
from jobs.pages.page import page as html_page
from jobs.studies.simulate.accesses import ReplayAnswer
from jobs.studies.simulate.replay_trace import export_replay

pytestmark = pytest.mark.service

CAPACITIES = (0.05, 0.1, 0.2)
SHOWN = ".plot g[data-series]:not(.off)"
VALUE = re.compile(r"\d (%|[kMGTPE]?B)\b|\d %")
NAMES = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "\"'><svg onload=window.hacked=3>",
    "{{ 7 * 7 }}{% raw %}",
    "line\u2028separator",
    "$\\frac{broken$",
    '_hidden & <g id="@0">',
)
"""As an attacker would choose them."""


def row(trace: str, policy: str, share: float, gap: float | None) -> dict[str, Any]:
    bounds = {"byte_gap_closed_lower": gap and gap - 0.1, "byte_gap_closed_upper": gap and gap + 0.1}
    wan_bytes = int(1e9 * (1 - (gap or 0)))
    counts = {
        "accesses": 1000,
        "wan_bytes": wan_bytes,
        "requests": 500,
        "n_days": 9,
        "cpu_us_per_access": 1.5,
    }
    return (
        {"trace": trace, "policy": policy, "capacity_fraction": share, "byte_gap_closed": gap}
        | bounds
        | counts
    )


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two traces; twenty policies with harmless names, and some with others."""
    policies = [*(f"policy-{n}" for n in range(20)), *NAMES]
    of_trace = {
        trace: [
            row(trace, policy, share, best - 0.02 * n + share)
            for n, policy in enumerate(policies)
            for share in CAPACITIES
        ]
        for trace, best in (("one", 0.6), (NAMES[0], 0.5))
    }
    return written(of_trace, tmp_path_factory.mktemp("board"))


def written(of_trace: dict[str, list[dict[str, Any]]], folder: Path) -> Path:
    """A page with a plot and a table of each trace."""
    sections = [
        Section(trace, figures=[Figure(plots.gap_closed(rows), f"Gap closed on {trace}")], rows=rows)
        for trace, rows in of_trace.items()
    ]
    capacities = Capacities("capacity_fraction", CAPACITIES)
    html = html_page(
        title="Policies", subtitle="", answers=["They differ."], sections=sections, capacities=capacities
    )
    path = folder / "board.html"
    path.write_text(html)
    return path


@pytest.fixture
def page(browser: Any, board: Path) -> Any:
    browser.open(board, width=1200)
    return browser


def tips(browser: Any) -> list[str]:
    return [
        tip for tip in browser.ask("[...document.querySelectorAll('.tip')].map(t => t.textContent)") if tip
    ]


def policies(browser: Any) -> list[str]:
    """The policies of the page, in the order of the legend."""
    names: list[str] = browser.ask(
        "[...document.querySelectorAll('.controls label')].map(l => l.textContent.trim()).slice(1)"
    )
    return names


def ticks(browser: Any, axis: str = "x") -> list[list[str]]:
    """The labels that each plot shows on an axis."""
    table: list[list[str]] = browser.ask(
        "[...document.querySelectorAll('.plot')]"
        f".map(p => [...p.querySelectorAll('[data-axis={axis}] .tick')]"
        ".filter(t => !t.matches('.off')).map(t => t.querySelector('text').textContent))"
    )
    return table


@pytest.mark.parametrize("width", [360, 1200])
def test_a_page_of_many_policies_opens_without_a_fault(browser: Any, board: Path, width: int) -> None:
    assert browser.faults(board, width=width) == []
    assert browser.ask("document.querySelectorAll('.plot > svg').length") == 2


def test_the_mouse_shows_the_nearest_value_with_its_unit(page: Any) -> None:
    assert tips(page) == []
    for n in range(2):
        page.point_at(".plot", n)
        (tip,) = tips(page)
        assert re.fullmatch(r".+: \d+\.\d % of the gap \(.* % to .* %\) at \d+\.0 % of the bytes read", tip)
    page.point_at("h1")
    assert tips(page) == []


def test_a_picked_capacity_is_followed_by_all_plots_and_tables(page: Any) -> None:
    assert ticks(page) == [["5", "10", "20"]] * 2
    page.ask("document.getElementById('capacity').focus()")
    page.press("ArrowDown", "ArrowDown")
    assert page.ask("document.getElementById('capacity').selectedOptions[0].text") == "10.0 %"
    assert ticks(page) == [["10"]] * 2
    for n in range(2):
        page.point_at(".plot", n)
        assert tips(page)[0].endswith("at 10.0 % of the bytes read")
    rows = "[...document.querySelectorAll('tr[data-capacity]')].filter(r => !r.hidden).length"
    assert page.ask(rows) == 2 * (20 + len(NAMES))
    page.press("Home")
    assert ticks(page) == [["5", "10", "20"]] * 2


def test_the_axis_fits_the_policies_that_are_shown(page: Any) -> None:
    high = max(int(tick) for tick in ticks(page, "y")[0])
    page.ask("document.querySelector('[data-all=\"\"]').click()")
    page.ask("document.getElementById('policy-12').click()")
    assert max(int(tick) for tick in ticks(page, "y")[0]) < high
    page.point_at(".plot")
    assert tips(page)[0].startswith(f"{policies(page)[12]}: ")


def test_a_policy_is_switched_off_in_all_plots_and_on_again(page: Any) -> None:
    n_shown, n = page.ask(f"document.querySelectorAll('{SHOWN}').length"), 20 + len(NAMES)
    page.ask("document.querySelector('.controls summary').click()")
    assert page.ask("document.getElementById('n-policies').innerText") == f"{n} of {n} shown"
    page.ask("document.querySelector('figure .legend label').click()")  # the legend is a switch as well
    assert page.ask("document.getElementById('policy-0').checked") is False
    groups = n_shown // (2 * n)  # of one policy in one plot
    assert page.ask(f"document.querySelectorAll('{SHOWN}').length") == n_shown - 2 * groups
    page.ask("document.querySelector('.plot').focus()")
    page.press("ArrowRight")
    assert tips(page)[0].startswith(f"{policies(page)[1]}: ")
    page.ask("document.getElementById('policy-0').focus()")
    page.press(" ")
    assert page.ask(f"document.querySelectorAll('{SHOWN}').length") == n_shown


def test_the_keyboard_alone_reaches_and_does_everything(page: Any) -> None:
    reached = []
    for _ in range(8):
        page.press("Tab")
        reached.append(
            page.ask(
                "document.activeElement.id || document.activeElement.className || "
                "document.activeElement.localName"
            )
        )
        assert page.ask("getComputedStyle(document.activeElement).outlineStyle") != "none", reached
    assert reached[:2] == ["capacity", "summary"]
    assert "plot" in reached
    page.ask("document.querySelector('.plot').focus()")
    page.press("ArrowRight", "ArrowRight")
    assert tips(page)[0].endswith("at 10.0 % of the bytes read")
    page.press("ArrowDown")
    assert tips(page)[0].startswith(f"{policies(page)[1]}: ") and tips(page)[0].endswith(
        "at 10.0 % of the bytes read"
    )
    page.press("End")
    assert tips(page)[0].endswith("at 20.0 % of the bytes read")
    page.press("Escape")
    assert tips(page) == []


def test_long_tables_are_folded_until_they_are_opened_and_print_as_they_are_shown(page: Any) -> None:
    rows = "[...document.querySelectorAll('tbody')].map(b => [...b.rows].filter(r => r.offsetParent).length)"
    n = len(CAPACITIES) * (20 + len(NAMES))
    assert [count for count in page.ask(rows) if count] == [12, 12]
    page.ask("document.querySelector('.fold').open = true")
    assert [count for count in page.ask(rows) if count] == [n, 12]
    page.on_paper(True)
    try:
        assert [count for count in page.ask(rows) if count] == [n, 12]
        assert page.ask("document.querySelector('.controls').offsetParent") is None
    finally:
        page.on_paper(False)


def test_names_of_others_are_shown_and_do_nothing(page: Any, board: Path) -> None:
    cells = page.ask("[...document.querySelectorAll('td:nth-child(2)')].map(c => c.textContent)")
    assert NAMES[1] in cells
    assert page.ask("window.hacked") is None
    assert page.ask("document.querySelectorAll('img').length") == 0
    assert page.complaints(board.as_uri()) == []


@pytest.fixture
def no_scripts(browser: Any) -> Iterator[Any]:
    browser.without_scripts(True)
    yield browser
    browser.without_scripts(False)


def test_without_scripts_there_are_pictures_and_tables(no_scripts: Any, board: Path) -> None:
    assert no_scripts.faults(board, width=360) == []
    assert no_scripts.ask("getComputedStyle(document.querySelector('.controls')).display") == "none"
    assert no_scripts.ask("document.querySelectorAll('.plot > svg').length") == 2
    assert "policy-19" in no_scripts.ask("document.body.textContent")


def test_a_page_of_nothing_opens_without_an_error(browser: Any, tmp_path: Path) -> None:
    nothing = dict.fromkeys(("hit_ratio", "byte_hit_ratio", "wan_bytes", "prefetch_bytes", "wasted_bytes"), 0)
    unknown = dict.fromkeys(
        ("cycle", *(f"byte_gap_closed{end}" for end in ("", "_lower", "_upper")), "core_hours")
    )
    rows = [{"policy": policy, "capacity_fraction": 0.1} | nothing | unknown for policy in ("lru", "s3fifo")]
    answer = EvaluationAnswer(None, "2026-03-01", "2026-03-02", tuple(rows), ())
    export_evaluation(answer, tmp_path / "none.html", title="Nothing")
    no_bounds = {"byte_gap_closed_lower": None, "byte_gap_closed_upper": None}
    few_days = [row("one", "sieve", share, 0.3) | no_bounds for share in CAPACITIES]
    board = written({"one": [row("one", "lru", 0.1, None), *few_days]}, tmp_path)
    for page in (tmp_path / "none.html", board):
        browser.open(page, width=360)
        assert browser.complaints(page.as_uri()) == []


def test_a_capacity_is_marked_where_it_is_an_axis(browser: Any, tmp_path: Path) -> None:
    ratios = {
        "hit_ratio": 0.5,
        "byte_hit_ratio": 0.4,
        "wan_bytes": 10**9,
        "prefetch_bytes": 0,
        "seconds": 0.1,
    }
    gaps = {"byte_gap_closed": 0.1, "object_gap_closed": None, "peak_hour_wan_bytes": 10**8}
    rows: list[dict[str, object]] = [
        {"policy": policy, "capacity_bytes": size, "capacity_fraction": size / 10**12} | ratios | gaps
        for policy in ("lru", "s3fifo")
        for size in (10**10, 10**11)
    ]
    export_replay(ReplayAnswer(rows, ()), tmp_path / "replay.html", title="A replay")
    browser.open(tmp_path / "replay.html", width=360)
    assert browser.ask("document.querySelector('.controls details').open") is False  # it would cover the plot
    guide = "getComputedStyle(document.querySelector('.picked')).display"
    assert browser.ask(guide) == "none"
    browser.ask("document.getElementById('capacity').focus()")
    browser.press("ArrowDown")
    assert browser.ask(guide) != "none"
    assert browser.ask("[...document.querySelectorAll('tbody tr')].filter(r => !r.hidden).length") == 2
    browser.point_at(".plot")
    assert VALUE.search(tips(browser)[0])


def test_a_capacity_of_a_study_is_marked_and_chosen_in_its_table(browser: Any, tmp_path: Path) -> None:
    draw, n = np.random.default_rng(4), 600
    file = np.where(draw.random(n) < 0.6, draw.integers(0, 20, n), 100 + np.arange(n))
    times = 1_754_000_000 + np.arange(n) * 2000
    pq.write_table(
        pa.table({"time": times, "item": [f"/a/f{k}" for k in file], "size": 10**9 + file}),
        tmp_path / "t.parquet",
    )
    trace, out = str(tmp_path / "t.parquet"), tmp_path / "study.html"
    answer = CliRunner().invoke(app, ["report", "--trace", trace, "--capacity", "40GB", "--out", str(out)])
    assert answer.exit_code == 0, answer.output
    assert browser.faults(out, width=360) == []
    guides = (
        "[...document.querySelectorAll('.picked')].filter(g => getComputedStyle(g).display !== 'none').length"
    )
    rows = (
        "[...document.querySelectorAll('tr[data-capacity]')].filter(r => !r.hidden).map(r => r.textContent)"
    )
    options: list[str] = browser.ask(
        "[...document.querySelectorAll('#capacity option')].map(o => o.textContent)"
    )
    every: list[str] = browser.ask(rows)
    assert "40 GB" in [name.replace("\u00a0", " ") for name in options]
    assert browser.ask(guides) == 0 and len(every) == len(options) - 1 > 1
    browser.ask("document.getElementById('capacity').focus()")
    for name in options[1:]:
        browser.press("ArrowDown")
        (text,) = browser.ask(rows)
        assert text.strip().startswith(name) and browser.ask(guides) == 1
    assert browser.ask("[...document.querySelectorAll('section')].every(s => !s.hidden)")
