"""The common style of all plots, readable in black and white, and their export as inline SVG."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

STYLE: Any = {
    "svg.fonttype": "path",
    "svg.hashsalt": "cachecast",  # the same data give the same page
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def new_figure() -> tuple[Figure, Axes]:
    """A figure of the page's proportions and its axes; draw within `mpl.rc_context(STYLE)`."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    return figure, figure.add_subplot()


def dated(axes: Axes) -> None:
    """Label the horizontal axis with times, as briefly as possible."""
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def svg(figure: Figure) -> str:
    """The figure as an `<svg>` element."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
