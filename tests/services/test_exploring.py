"""Pages that people explore, in a real browser: values, capacities, policies, and the keyboard alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.pages import plots
from jobs.pages.page import Capacities, Figure, Section
from jobs.pages.page import page as html_page

pytestmark = pytest.mark.service

CAPACITIES = (0.05, 0.1, 0.2)
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
    counts = {"accesses": 1000, "requests": 500, "n_days": 9, "cpu_us_per_access": 1.5}
    named = {"trace": trace, "policy": policy, "capacity_fraction": share, "byte_gap_closed": gap}
    return {**named, **bounds, **counts, "wan_bytes": int(1e9 * (1 - (gap or 0)))}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plot and a table of two traces; twenty policies with harmless names, and some with others."""
    policies = [*(f"policy-{n}" for n in range(20)), *NAMES]
    sections = []
    for trace, best in (("one", 0.6), (NAMES[0], 0.5)):
        rows = [
            row(trace, policy, share, best - 0.02 * n + share)
            for n, policy in enumerate(policies)
            for share in CAPACITIES
        ]
        gap = Figure(plots.gap_closed(rows), f"Gap closed on {trace}")
        sections.append(Section(trace, figures=[gap], rows=rows))
    capacities = Capacities("capacity_fraction", CAPACITIES)
    html = html_page(
        title="Policies", subtitle="", answers=["They differ."], sections=sections, capacities=capacities
    )
    path = tmp_path_factory.mktemp("board") / "board.html"
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


def ticks(browser: Any) -> list[list[str]]:
    """The labels that each plot shows on its x axis."""
    table: list[list[str]] = browser.ask(
        "[...document.querySelectorAll('.plot')]"
        ".map(p => [...p.querySelectorAll('[data-axis=x] .tick')]"
        ".filter(t => !t.matches('.off')).map(t => t.querySelector('text').textContent))"
    )
    return table


@pytest.mark.parametrize("width", [360, 1200])
def test_a_page_of_many_policies_opens_without_a_fault(browser: Any, board: Path, width: int) -> None:
    assert browser.faults(board, width=width) == []
    assert browser.ask("document.querySelectorAll('.plot > svg').length") == 2


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
