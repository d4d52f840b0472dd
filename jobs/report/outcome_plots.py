"""The plot of what plans saved."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import matplotlib as mpl

from jobs.report.drawing import STYLE, dated, new_figure, svg
from jobs.text import Row

_TERA = 1e12


def saved_by_day(days: Sequence[Row]) -> str:
    """WAN bytes saved against LRU, one bar per day, negative if the plan cost more; without withheld days."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        judged = [row for row in days if row["withheld"] is None]
        at = [dt.datetime.fromisoformat(str(row["day"])) for row in judged]
        axes.bar(at, [row["saved_wan_bytes"] / _TERA for row in judged], width=0.8, color="#0b6e99")  # type: ignore[arg-type]
        axes.axhline(0, color="#111111", linewidth=0.8)
        axes.set(ylabel="WAN saved, TB per day")
        dated(axes)
        return svg(figure)
