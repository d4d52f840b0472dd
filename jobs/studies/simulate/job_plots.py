"""Plots about jobs: traffic against disk, and KIT's Eq. 1."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl

from features.common.units import format_bytes
from jobs.ground.text import Row, time_unit
from jobs.pages.drawing import DARK, STYLE, Plot, Point

GREY = "#5b6770"


def traffic_against_disk(points: Sequence[Row]) -> Plot:
    """WAN traffic per day over the disk saved, a mark per capacity. `points`: of `storage`."""
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
