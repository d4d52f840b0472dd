"""The plot of what plans saved."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import matplotlib as mpl

from features.common.units import format_bytes
from jobs.report.drawing import STYLE, Plot, Point, dated
from jobs.text import Row

_TERA = 1e12


def saved_by_day(days: Sequence[Row]) -> Plot:
    """WAN bytes saved against LRU, one bar per day, negative if more was fetched."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        at = [dt.datetime.fromisoformat(str(row["day"])) for row in days]
        saved = [row["saved_wan_bytes"] / _TERA for row in days]
        bars = plot.axes.bar(at, saved, width=0.8, color="#0b6e99")  # type: ignore[arg-type]
        said = [f"{format_bytes(row['saved_wan_bytes'])} saved on {row['day']}" for row in days]
        plot.add("", bars, map(Point, at, saved, said))
        plot.axes.axhline(0, color="#111111", linewidth=0.8)
        plot.axes.set(ylabel="WAN saved, TB per day")
        dated(plot.axes)
        return plot
