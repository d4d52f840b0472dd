"""Plots about jobs: their CPU efficiency by where the data were, and KIT's Eq. 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl

from features.common.errors import bounded, printable
from jobs.report.drawing import STYLE, Plot, Point
from jobs.report.study_plots import DARK
from jobs.text import Row, bounds, count, percent

if TYPE_CHECKING:
    from jobs.efficiency.efficiency import Group

GREY = "#5b6770"
_NAME_CHARS = 30


def interval_of(group: Group) -> str:
    """The bounds of a group's CPU efficiency, in words."""
    if group.cpu_efficiency_lower_share is None:
        return f"only {group.tasks} tasks"
    return bounds(group.cpu_efficiency_lower_share, group.cpu_efficiency_upper_share, 1)


def efficiency(groups: Sequence[Group]) -> Plot:
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
        plot.axes.set_xticks(at, names, rotation=60 if crowded else 0, ha="right" if crowded else "center")
        plot.axes.set(
            ylabel="CPU efficiency, %", ylim=(max(0, min(y) - 15), 102), xlim=(-0.5, max(len(names), 3) - 0.5)
        )
        return plot


def processing_time(points: Sequence[Row]) -> Plot:
    """KIT's Eq. 1: processing time over the cached fraction, by what limits it. `points`: by fraction."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        x, hours = (
            [scale * p[key] for p in points]
            for key, scale in (("cached_fraction", 100), ("processing_s", 1 / 3600))
        )
        plot.axes.plot(x, hours, color=GREY, linewidth=1)
        looks = {"network": "v", "caches": "s", "computing": "o"}
        for limit, marker in looks.items():
            chosen = [k for k, p in enumerate(points) if p["limited_by"] == limit]
            at, mine = [x[k] for k in chosen], [hours[k] for k in chosen]
            (drawn,) = plot.axes.plot(at, mine, marker, color=DARK, markersize=5)
            said = [f"{hours[k]:.3g} h with {x[k]:.3g} % cached, limited by {limit}" for k in chosen]
            if chosen:
                plot.add(f"limited by {limit}", drawn, map(Point, at, mine, said))
        plot.axes.set(xlabel="cached fraction, %", ylabel="processing time, h", ylim=(0, None))
        return plot
