"""The page of jobs: their CPU efficiency and failures by where their data were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl

from jobs.report.drawing import STYLE, Plot, Point
from jobs.report.page import Figure, Section, page
from jobs.text import Row, as_row, bounds, count, percent

if TYPE_CHECKING:
    from jobs.efficiency.efficiency import EfficiencyAnswer, Group

_HOW = (
    "CPU seconds over the wall seconds of all cores, of jobs that ended well. Whiskers and brackets are 95 % "
    "intervals by resamples of whole tasks, for jobs of a task are alike; groups of few tasks have none."
)
_WHERE = {
    "local": "read from the site's own storage",
    "hit": "read from a cache's disk",
    "miss": "fetched from the origin through a cache",
    "remote": "read from the origin past all caches",
}


def efficiency_page(found: EfficiencyAnswer, span: str) -> str:
    """The HTML page of a report; `span`: the days of the jobs' starts, in words."""
    places = ", ".join(f"{place}: {what}" for place, what in _WHERE.items())
    return page(
        title="Jobs by where their data were",
        subtitle=f"{count(found.jobs)} jobs, {span}; the reads of {percent(found.found_share)} were found",
        answers=list(answers(found)),
        sections=[
            _section(
                "By place", f"{places}. A job is mixed if no place gave it 80 % of its bytes.", found.by_place
            ),
            _section("By kind of work", "As the batch or workload system names it.", found.by_kind),
            _section(
                "By distance", "By the region of the origin that most bytes came from.", found.by_region
            ),
        ],
    )


def answers(found: EfficiencyAnswer) -> Iterator[str]:
    """A sentence per place with jobs."""
    for group in found.by_place:
        if group.cpu_efficiency_share is not None and group.place in _WHERE:
            yield (
                f"{group.place}: a CPU efficiency of {percent(group.cpu_efficiency_share, 1)} "
                f"({_bounds(group)}); {percent(group.failed_share or 0, 1)} of {count(group.jobs)} jobs "
                f"failed and wasted {count(group.wasted_core_hours)} of {count(group.core_hours)} core hours."
            )


def _bounds(group: Group) -> str:
    if group.cpu_efficiency_lower_share is None:
        return f"only {group.tasks} tasks"
    return bounds(group.cpu_efficiency_lower_share, group.cpu_efficiency_upper_share, 1)


def _section(title: str, note: str, groups: Sequence[Group]) -> Section:
    shown = [group for group in groups if group.cpu_efficiency_share is not None]
    figures = [Figure(efficiency(shown), f"CPU efficiency, {title.lower()}")] if shown else []
    return Section(title, f"{note} {_HOW}", figures, [_row(group) for group in groups])


def _row(group: Group) -> Row:
    row = as_row(group)
    return {
        key: value
        for key, value in row.items()
        if key not in ("kind", "region", "rtt_ms") or value is not None
    }


def efficiency(groups: Sequence[Group]) -> Plot:
    """CPU efficiency of each group, with its interval; `groups` have one."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        names = [
            " ".join(str(part) for part in (g.place, g.kind, g.region) if part is not None) for g in groups
        ]
        y = [100 * (g.cpu_efficiency_share or 0) for g in groups]
        low, high = (
            [100 * abs((value if value is not None else share) - share) for share, value in pairs]
            for pairs in (
                [(g.cpu_efficiency_share or 0, g.cpu_efficiency_lower_share) for g in groups],
                [(g.cpu_efficiency_share or 0, g.cpu_efficiency_upper_share) for g in groups],
            )
        )
        at = range(len(names))
        drawn = plot.axes.errorbar(at, y, yerr=[low, high], fmt="o", markersize=3, color="#0b6e99", capsize=6)
        said = [
            f"{name}: {percent(g.cpu_efficiency_share or 0, 1)} ({_bounds(g)}), {count(g.jobs)} jobs"
            for name, g in zip(names, groups, strict=True)
        ]
        plot.add("", drawn, map(Point, at, y, said))
        crowded = len(names) > 6
        plot.axes.set_xticks(at, names, rotation=60 if crowded else 0, ha="right" if crowded else "center")
        plot.axes.set(
            ylabel="CPU efficiency, %", ylim=(max(0, min(y) - 15), 102), xlim=(-0.5, max(len(names), 3) - 0.5)
        )
        return plot
