"""Plots about jobs: their CPU efficiency by where the data were, and KIT's Eq. 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl

from features.common.errors import bounded, printable
from features.common.units import format_bytes
from jobs.report.drawing import STYLE, Plot, Point
from jobs.report.study_plots import DARK
from jobs.text import Row, bounds, count, percent, time_unit

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
        lines = [name.replace(" ", "\n", 1) for name in names]
        plot.axes.set_xticks(at, lines, rotation=60 if crowded else 0, ha="right" if crowded else "center")
        plot.axes.set(
            ylabel="CPU efficiency, %", ylim=(max(0, min(y) - 15), 102), xlim=(-0.5, max(len(names), 3) - 0.5)
        )
        return plot


def traffic_against_disk(points: Sequence[Row]) -> Plot:
    """WAN traffic per day over the disk saved, a mark per capacity. `points`: of `jobs.simulate.storage`."""
    with mpl.rc_context(STYLE):
        plot = Plot()
        at, traffic = ([p[key] / 1e12 for p in points] for key in ("saved_bytes", "wan_bytes_per_day"))
        (drawn,) = plot.axes.plot(at, traffic, "o--", color=DARK, markersize=5, clip_on=False)
        said = [
            f"a cache of {format_bytes(p['capacity_bytes'])}: {format_bytes(p['saved_bytes'])} less disk, "
            f"{format_bytes(p['wan_bytes_per_day'])} more WAN traffic per day"
            for p in points
        ]
        plot.add("", drawn, map(Point, at, traffic, said))
        for p, x, y in zip(points, at, traffic, strict=True):
            name = format_bytes(p["capacity_bytes"])
            plot.axes.annotate(name, (x, y), xytext=(0, -14), textcoords="offset points", ha="center")
        plot.axes.margins(x=0.1)
        plot.axes.set(xlabel="less disk, TB", ylabel="more WAN traffic, TB per day", ylim=(0, None))
        return plot


def processing_time(points: Sequence[Row]) -> Plot:
    """KIT's Eq. 1: processing time over the cached fraction, by what limits it. `points`: by fraction."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        unit, unit_s = time_unit(max(p["processing_s"] for p in points))
        x, takes = (
            [scale * p[key] for p in points]
            for key, scale in (("cached_fraction", 100), ("processing_s", 1 / unit_s))
        )
        plot.axes.plot(x, takes, color=GREY, linewidth=1)
        looks = {"network": "v", "caches": "s", "computing": "o"}
        for limit, marker in looks.items():
            chosen = [k for k, p in enumerate(points) if p["limited_by"] == limit]
            at, mine = [x[k] for k in chosen], [takes[k] for k in chosen]
            (drawn,) = plot.axes.plot(at, mine, marker, color=DARK, markersize=5)
            said = [f"{takes[k]:.3g} {unit} with {x[k]:.3g} % cached, limited by {limit}" for k in chosen]
            if chosen:
                plot.add(f"limited by {limit}", drawn, map(Point, at, mine, said))
        plot.axes.set(xlabel="cached fraction, %", ylabel=f"processing time, {unit}", ylim=(0, None))
        return plot
