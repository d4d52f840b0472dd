"""Plots as inline SVG, readable in black and white: lines differ by dash and marker, not by colour alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from features.units import duration_label, format_bytes
from jobs.console import Row

POLICIES = ("lru", "lru+plan", "clairvoyant", "bound")
LABELS = {"lru": "LRU", "lru+plan": "LRU + plan", "clairvoyant": "clairvoyant", "bound": "bound"}
_COLOURS = {"lru": "#5b6770", "lru+plan": "#0b6e99", "clairvoyant": "#b5651d", "bound": "#111111"}
_DASHES = {"lru": (0, (5, 2)), "lru+plan": "solid", "clairvoyant": (0, (1, 1)), "bound": (0, (5, 1, 1, 1))}
_MARKERS = {"lru": "s", "lru+plan": "o", "clairvoyant": "^", "bound": "D"}

_STYLE: Any = {
    "svg.fonttype": "path",
    "svg.hashsalt": "cachecast",  # the same figures give the same page
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def hit_ratio_against_capacity(replays: Sequence[Row]) -> str:
    """Byte hit ratio of each policy at each capacity; the bound's is the best that any policy could reach."""
    with mpl.rc_context(_STYLE):
        figure, axes = _figure()
        for policy in _present(replays):
            rows = sorted((r for r in replays if r["policy"] == policy), key=lambda r: r["capacity_bytes"])
            axes.plot(
                [r["capacity_fraction"] * 100 for r in rows],
                [r["byte_hit_ratio"] * 100 for r in rows],
                **_line(policy),
                marker=_MARKERS[policy],
            )
        axes.set(xlabel="capacity, % of the bytes read", ylabel="byte hit ratio, %", ylim=(0, None))
        axes.legend(frameon=False)
        return _svg(figure)


def fill_with_watermarks(fills: Sequence[Row], *, watermarks: tuple[float, float]) -> str:
    """Fill level of one capacity's caches over time. `fills`: rows of replay_fills."""
    with mpl.rc_context(_STYLE):
        figure, axes = _figure()
        capacity = fills[0]["capacity_bytes"] if fills else 1.0
        for policy in _present(fills):
            rows = [r for r in fills if r["policy"] == policy]
            axes.plot(
                [r["at"] for r in rows], [100 * r["used_bytes"] / capacity for r in rows], **_line(policy)
            )
        for level, name in zip(watermarks, ("low", "high"), strict=True):
            axes.axhline(100 * level, color="black", linewidth=0.8, linestyle=(0, (2, 4)))
            axes.annotate(
                f"{name} watermark", (1.01, 100 * level), xycoords=("axes fraction", "data"), fontsize=8
            )
        axes.set(ylabel=f"fill, % of {format_bytes(capacity)}", ylim=(50, 105))
        _dated(axes)
        return _svg(figure)


def hits_and_misses(days: Sequence[Row]) -> str:
    """Hits and misses a day at one capacity, LRU beside LRU + plan. `days`: rows of replay_days."""
    with mpl.rc_context(_STYLE):
        figure, axes = _figure()
        shown = [p for p in ("lru", "lru+plan") if p in _present(days)]
        names = sorted({str(r["on_day"]) for r in days})
        width = 0.8 / max(1, len(shown))
        for k, policy in enumerate(shown):
            rows = {str(r["on_day"]): r for r in days if r["policy"] == policy}
            at = [i + (k - (len(shown) - 1) / 2) * width for i in range(len(names))]
            hits = [rows[n]["hits"] if n in rows else 0.0 for n in names]
            misses = [rows[n]["misses"] if n in rows else 0.0 for n in names]
            colour = _COLOURS[policy]
            axes.bar(at, hits, width, color=colour, edgecolor="white", label=f"{LABELS[policy]}: hits")
            axes.bar(
                at,
                misses,
                width,
                bottom=hits,
                color="white",
                edgecolor=colour,
                hatch="///",
                label=f"{LABELS[policy]}: misses",
            )
        axes.set_xticks(range(len(names)), [n[5:] for n in names], rotation=45)
        axes.set(ylabel="reads a day")
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        return _svg(figure)


def calibration(bins: Sequence[Row]) -> str:
    """Observed against predicted share per horizon, on held-out days. `bins`: rows of reliability."""
    with mpl.rc_context(_STYLE):
        figure, axes = _figure()
        axes.plot([0, 100], [0, 100], color="black", linewidth=0.8, linestyle=(0, (2, 4)), label="perfect")
        for marker, horizon in zip("osD^v<>", sorted({r["horizon_s"] for r in bins}), strict=False):
            rows = sorted((r for r in bins if r["horizon_s"] == horizon), key=lambda r: r["bin"])
            axes.plot(
                [100 * r["predicted"] for r in rows],
                [100 * r["observed"] for r in rows],
                marker=marker,
                markersize=4,
                label=f"within {duration_label(horizon)}",
            )
        axes.set(
            xlabel="predicted chance of a read, %",
            ylabel="files that were read, %",
            xlim=(0, 100),
            ylim=(0, 100),
        )
        axes.legend(frameon=False)
        return _svg(figure)


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    return figure, figure.add_subplot()


def _present(rows: Sequence[Row]) -> list[str]:
    there = {str(r["policy"]) for r in rows}
    return [policy for policy in POLICIES if policy in there]


def _line(policy: str) -> dict[str, Any]:
    return {"color": _COLOURS[policy], "linestyle": _DASHES[policy], "label": LABELS[policy]}


def _dated(axes: Axes) -> None:
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.legend(frameon=False, loc="lower right")


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
