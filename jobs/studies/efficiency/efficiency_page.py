"""The page of jobs: their CPU efficiency and failures by where their data were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl

from features.common.errors import bounded, printable
from jobs.ground.text import Row, as_row, bounds, count, percent
from jobs.pages.drawing import DARK, STYLE, Plot, Point
from jobs.pages.page import Figure, Section, page

if TYPE_CHECKING:
    from jobs.studies.efficiency.efficiency import EfficiencyAnswer, Group

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


_READS = {"local": "Local reads", "hit": "Hits", "miss": "Misses", "remote": "Remote reads"}
_UNSHOWN = ("tasks", "failed_lower_share", "failed_upper_share", "rtt_ms")
"""Columns that `--json` has; with them the page would scroll sideways."""
_NAME_CHARS = 30


def efficiency_page(answer: EfficiencyAnswer, span: str) -> str:
    """The HTML page of a report; `span`: the days of the jobs' starts, in words."""
    places = ", ".join(f"{place}: {what}" for place, what in _WHERE.items())
    return page(
        title="Jobs by where their data were",
        subtitle=f"{count(answer.jobs)} jobs, {span}; the reads of {percent(answer.found_share)} were found",
        answers=list(answers(answer)),
        sections=[
            _section(
                "By place",
                f"{places}. A job is mixed if no place gave it 80 % of its bytes.",
                answer.by_place,
            ),
            _section("By kind of work", "As the batch or workload system names it.", answer.by_kind),
            _section(
                "By distance", "By the region of the origin that most bytes came from.", answer.by_region
            ),
        ],
    )


def answers(answer: EfficiencyAnswer) -> Iterator[str]:
    """What a miss costs against a hit, then a sentence per place with jobs, and how many have no times."""
    share = {group.place: group.cpu_efficiency_share for group in answer.by_place}
    if (hit := share.get("hit")) is not None and (miss := share.get("miss")) is not None:
        than = "less" if miss < hit else "more"
        yield (
            f"Jobs whose reads are misses have {abs(100 * (hit - miss)):.1f} points {than} CPU efficiency "
            "than those whose reads are hits."
        )
    for group in answer.by_place:
        if group.cpu_efficiency_share is not None and group.place in _WHERE:
            yield (
                f"{_READS[group.place]}: a CPU efficiency of {percent(group.cpu_efficiency_share, 1)} "
                f"({interval_of(group)}); {percent(group.failed_share or 0, 1)} of {count(group.jobs)} jobs "
                f"failed and wasted {count(group.wasted_core_hours)} of {count(group.core_hours)} core hours."
            )
    if answer.untimed_jobs:
        yield (
            f"{count(answer.untimed_jobs)} of {count(answer.jobs)} jobs have no CPU time, wall time or "
            "cores: they count in jobs and failures, not in the efficiency or hours that need what they lack."
        )


def _section(title: str, note: str, groups: Sequence[Group]) -> Section:
    with_efficiency = [group for group in groups if group.cpu_efficiency_share is not None]
    figures = (
        [Figure(efficiency_plot(with_efficiency), f"CPU efficiency, {title.lower()}")]
        if with_efficiency
        else []
    )
    return Section(title, f"{note} {_HOW}", figures, [_row(group) for group in groups])


def _row(group: Group) -> Row:
    return {
        key: value
        for key, value in as_row(group).items()
        if key not in _UNSHOWN and (key not in ("kind", "region") or value is not None)
    }


def interval_of(group: Group) -> str:
    """The bounds of a group's CPU efficiency, in words."""
    if group.cpu_efficiency_lower_share is None:
        return f"only {group.tasks} tasks"
    return bounds(group.cpu_efficiency_lower_share, group.cpu_efficiency_upper_share, 1)


def efficiency_plot(groups: Sequence[Group]) -> Plot:
    """CPU efficiency of each group, with its interval; `groups` have one."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        names = [
            " ".join(bounded(printable(part), _NAME_CHARS) for part in (g.place, g.kind, g.region) if part)
            for g in groups
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
        drawn = plot.axes.errorbar(at, y, yerr=[low, high], fmt="o", markersize=3, color=DARK, capsize=6)
        said = [
            f"{name}: {percent(g.cpu_efficiency_share or 0, 1)} ({interval_of(g)}), {count(g.jobs)} jobs"
            for name, g in zip(names, groups, strict=True)
        ]
        plot.add("", drawn, map(Point, at, y, said))
        crowded = len(names) > 6
        lines = [name.replace(" ", "\n", 1) for name in names]
        plot.axes.set_xticks(at, lines, rotation=60 if crowded else 0, ha="right" if crowded else "center")
        plot.axes.set(
            ylabel="CPU efficiency, %", ylim=(max(0, min(y) - 15), 102), xlim=(-0.5, max(len(names), 3) - 0.5)
        )
        return plot
