"""Plots in one style, readable in black and white: matplotlib's SVG, and what a page needs to explore it."""

import dataclasses
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date
from matplotlib.figure import Figure

from features.common.errors import printable

STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may hold a dollar sign
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
POINTS_PER_INCH = 72
DARK, LIGHT, WARM = "#0b6e99", "#9fb8c4", "#b5651d"
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_SERIES, _AXIS, _TICK, _OTHER = (
    re.compile(f'<g id="{name}">') for name in (r"@(\d+)", r"@([xyl])", "([xy])tick_[0-9]+", '[^"]*')
)


class Point(NamedTuple):
    """A value to read at (x, y) in units of the axes; `capacity`: the one it is of, if of one."""

    x: Any
    y: float
    text: str
    capacity: float | None = None


class Series(NamedTuple):
    """What a reader can switch off: a `policy` in all plots of a page at once. `drawn`: for the legend."""

    label: str
    drawn: Any
    points: Sequence[Point]
    policy: str | None


@dataclasses.dataclass(frozen=True)
class Zoom:
    """A plot with one place per capacity on its horizontal axis, at 0, 1, …, which a page can zoom into.

    `asides`: how far each series is moved sideways from its places; all share a width of `spread`.
    """

    capacities: Sequence[float]
    asides: Sequence[float]
    spread: float


class Plot:
    """One plot: draw on `axes` within `mpl.rc_context(STYLE)`, then `add` each series.

    `nearest`: how a pointer finds points (`xy`, or an axis); `height`: in inches, of a width of 6.4.
    """

    def __init__(self, *, nearest: str = "xy", height: float = 3.6) -> None:
        self.figure = Figure(figsize=(6.4, height), dpi=POINTS_PER_INCH, layout="constrained")
        self.axes: Axes = self.figure.add_subplot()
        self.series: list[Series] = []
        self.nearest = nearest
        self.zoom: Zoom | None = None

    def add(self, label: str, drawn: Any, points: Iterable[Point], *, policy: str | None = None) -> None:
        """Register what was drawn as a series; without a label it is always shown and in no legend."""
        for artist in drawn.get_children() if isinstance(drawn, Container) else [drawn]:
            artist.set_gid(f"@{len(self.series)}")
        self.series.append(Series(printable(label), drawn, list(points), policy))

    def line(self, label: str, points: Sequence[Point], *, policy: str | None = None, **look: Any) -> None:
        """Draw a line through `points` with matplotlib's `look`, and add it as a series."""
        (drawn,) = self.axes.plot([point.x for point in points], [point.y for point in points], **look)
        self.add(label, drawn, points, policy=policy)

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self, *, salt: str = "cachecast", legend: bool = True) -> str:
        """The plot as an `<svg>` element; `salt` keeps its ids apart from those of other plots."""
        labelled = [line for line in self.series if line.label] if legend else []
        with mpl.rc_context(STYLE):
            if labelled:
                self.figure.legend(
                    [line.drawn for line in labelled],
                    # One that began with an underscore would be left out.
                    ["\u200b" * line.label.startswith("_") + line.label for line in labelled],
                    loc="outside upper center",
                    ncols=4,
                    frameon=False,
                    fontsize=8,
                )
            for name, axis in (("x", self.axes.xaxis), ("y", self.axes.yaxis)):
                axis.set_gid(f"@{name}")
            svg = _svg(self.figure, salt)
        # With attributes by which a page finds series, axes and ticks, and no other id of a group.
        marked = _AXIS.sub(r'<g data-axis="\1">', _SERIES.sub(r'<g data-series="\1">', svg))
        return _OTHER.sub("<g>", _TICK.sub(r'<g class="tick">', marked))

    def reading(self, capacities: Sequence[float]) -> dict[str, Any]:
        """What a page's script reads, after `svg`: points and axes in units of the SVG.

        A point is series, x, y, text and the place of its capacity in `capacities` (None: of no capacity).
        """
        places = {capacity: k for k, capacity in enumerate(capacities)}
        points = [
            [k, *self._place(point.x, point.y), point.text, places.get(point.capacity)]  # type: ignore[arg-type]
            for k, line in enumerate(self.series)
            for point in line.points
        ]
        box, height = self.axes.bbox, self._height()
        edges = [round(float(v), 2) for v in (box.x0, height - box.y1, box.x1, height - box.y0)]
        content: dict[str, Any] = {"near": self.nearest, "points": points, "box": edges}
        return content if self.zoom is None else content | {"zoom": self._zoom(self.zoom, places)}

    def _zoom(self, zoom: Zoom, place_of: Mapping[float, int]) -> dict[str, Any]:
        start, unit = self._place(0, 0), self._place(1, 0)[0] - self._place(0, 0)[0]
        places = {place_of[c]: self._place(k, 0)[0] for k, c in enumerate(zoom.capacities) if c in place_of}
        return {
            "unit": round(unit, 2),
            "places": places,
            "asides": [round(unit * aside, 2) for aside in zoom.asides],
            "spread": zoom.spread,
            "zero": start[1],
            "one": self._place(0, 1)[1],
        }

    def _place(self, x: Any, y: float) -> tuple[float, float]:
        at = self.axes.transData.transform((self.axes.convert_xunits(x), self.axes.convert_yunits(y)))
        return round(float(at[0]), 2), round(self._height() - float(at[1]), 2)

    def _height(self) -> float:
        return float(self.figure.get_figheight()) * POINTS_PER_INCH


def swatch(drawn: Any) -> str:
    """The look of a series in a legend, as an `<svg>` element."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(0.4, 0.2), dpi=POINTS_PER_INCH)
        none = dict.fromkeys(("borderpad", "borderaxespad", "handletextpad", "labelspacing"), 0)
        figure.legend([drawn], [""], loc="center", frameon=False, handlelength=2.4, **none)
        return _OTHER.sub("<g>", _svg(figure, "swatch"))


def from_zero(axes: Axes) -> None:
    """Start the vertical axis at 0, with room above for the highest mark."""
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


class _Dates(ConciseDateFormatter):
    """Times as briefly as possible. The first day has its month below, as the axis ends with the last's."""

    def format_ticks(self, values: Any) -> list[str]:
        labels: list[str] = super().format_ticks(values)
        assert self.axis is not None
        begin = min(self.axis.get_view_interval())
        first = next((k for k, value in enumerate(values) if value >= begin), None)
        if first is not None and re.fullmatch(r"\d\d", labels[first]):
            labels[first] += f"\n{num2date(values[first]):%b}"
        return labels


def dated(axes: Axes) -> None:
    """Label the horizontal axis with times, as briefly as possible."""
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_Dates(locator))


def _svg(figure: Figure, salt: str) -> str:
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt}):  # the same data give the same page
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
