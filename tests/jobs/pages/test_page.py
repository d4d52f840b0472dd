"""Pages: what a script reads is data, whatever the names; one script, named by its hash; any plot."""

import base64
import hashlib
import re
from typing import Any

import matplotlib as mpl

from jobs.pages.drawing import STYLE, Plot, Point
from jobs.pages.page import Capacities, Figure, Section, page
from jobs.pages.plots import calibration
from jobs.pages.runs import comparison
from jobs.pages.verdicts import by_merit, savings, verdict


def plot(*names: str, policy: bool = True) -> Plot:
    with mpl.rc_context(STYLE):
        drawn = Plot()
        for n, name in enumerate(names):
            (line,) = drawn.axes.plot([1, 2], [n, n + 1])
            points = [Point(1, n, f"{n} % of {name}", 10), Point(2, n + 1, "no number", 20)]
            drawn.add(name, line, points, policy=name if policy else None)
        drawn.axes.set_xticks([1, 2], [*names, "x", "y"][:2])
    return drawn


def written(*names: str) -> str:
    rows = [{"policy": name, "capacity_bytes": 10} for name in names]
    section = Section(names[0], names[0], [Figure(plot(*names), names[0])], rows)
    sizes = Capacities(values=[10, 20])
    return page(title="t", subtitle=names[0], answers=names, sections=[section], capacities=sizes)


def test_ids_of_two_plots_differ_and_the_same_data_give_the_same_page() -> None:
    names = ("lru", "s3fifo")
    figures = [Figure(plot(*names), "one"), Figure(plot(*names), "two")]
    html = page(title="t", subtitle="", answers=[], sections=[Section("s", figures=figures)])
    ids = re.findall(r'\bid="([^"]+)"', re.sub(r'<svg class="looks".*?</section>', "", html))
    in_plots = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in html.split('<div class="plot"')[1:]]
    assert in_plots[0] and not in_plots[0] & in_plots[1]
    assert ids
    assert written(*names) == written(*names)


def test_every_horizon_has_its_line_of_calibration() -> None:
    bins = [{"horizon_s": 3600 * n, "bin": 0, "predicted": 0.5, "observed": 0.4} for n in range(1, 11)]
    assert len(calibration(bins).series) == 10


def test_only_our_script_may_run_and_nothing_may_be_fetched() -> None:
    html = written("lru")
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in html
    )
    assert not re.findall(r'(?:src|href)="(?!#|data:,)', html)


def row(policy: str, size: int, wan: int, gap: float | None = None, **more: Any) -> dict[str, Any]:
    return {"policy": policy, "capacity_bytes": size, "wan_bytes": wan, "byte_gap_closed": gap, **more}


ONE = [
    row("lru", 10, 100, 0.0),
    row("sieve", 10, 90, 0.2, byte_gap_closed_lower=0.1, byte_gap_closed_upper=0.3),
    row("clairvoyant", 10, 60, 0.8),
    row("bound", 10, 50, 1.0),
]


def test_the_best_is_named_that_knows_no_future() -> None:
    assert verdict(ONE, "capacity_bytes") == (
        "At 10 B, sieve saves 10 B of WAN traffic against LRU (10.0 %), 20 % of the gap (10 % to 30 %)."
    )
    assert verdict(ONE[:1], "capacity_bytes") == "At 10 B, no policy that was compared fetches less than LRU."
    assert verdict(ONE[1:2], "capacity_bytes") == "Least WAN traffic: sieve."
    assert verdict(ONE[2:], "capacity_bytes") == "Nothing that could be run was compared."
    level = [row("sieve", 10, 100, 0.0), *ONE[:1]]
    assert "no policy" in verdict(level, "capacity_bytes")  # a draw is no gain


def test_several_capacities_are_one_sentence() -> None:
    two = [*ONE, row("lru", 20, 80, 0.0), row("steward", 20, 76, 0.5), row("bound", 20, 72, 1.0)]
    assert verdict(two, "capacity_bytes") == (
        "Least WAN traffic without knowing the future: sieve at 10 B, a steward at 20 B; "
        "5.0 % to 10.0 % less than LRU, 20.0 % to 50.0 % of the gap to the bound."
    )
    order = [(each["capacity_bytes"], each["policy"]) for each in by_merit(two[::-1], "capacity_bytes")]
    assert order[:3] == [(10, "bound"), (10, "clairvoyant"), (10, "sieve")]
    assert order[-3:] == [(20, "bound"), (20, "steward"), (20, "lru")]
    (line,) = savings(two, "capacity_bytes", ("steward",))
    assert line.startswith("At 20 B, a steward saves 4 B")
    worse = [row("lru", 10, 100), row("lru+plan", 10, 110, -0.2, cycle="1h")]
    (line,) = savings(worse, "capacity_bytes", ("lru+plan",))
    assert line.startswith("At 10 B, lru+plan every 1h costs 10 B of WAN traffic against LRU (10.0 %), -20 %")


def test_figures_of_a_run_are_named_by_the_capacity_that_was_asked_for() -> None:
    sizes = {50 * 10**12: 0.0512, 1_234_500_000_000: 0.1}
    rows = [
        row(policy, size, 9, 0.5, capacity_fraction=share)
        for policy in ("lru", "sieve")
        for size, share in sizes.items()
    ]
    for column, names in (
        ("capacity_bytes", {"50TB", "1.2345TB"}),
        ("capacity_fraction", {"5.12pct", "10pct"}),
    ):
        run = comparison("a trace", "replay", rows, column, params={}, tags={})
        assert set(run.params["capacities"].split(", ")) == names
        assert {name.split("/")[1] for name in run.children[0].metrics} == names
        assert {f"sieve/byte_gap_closed/{name}" for name in names} <= run.metrics.keys()
