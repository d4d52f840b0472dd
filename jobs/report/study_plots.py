"""The study's plots: bars differ by hatch, lines by dash and marker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from features.times import DAY_S
from features.units import format_bytes
from jobs.report.drawing import STYLE, dated, new_figure, svg
from jobs.text import count
from replay.benefit import FloatArray
from replay.curve import Curve
from replay.planner import IntArray
from replay.study.days import running_mean
from replay.study.shapes import Lifetimes, Ranks, Sizes
from replay.study.study import Ideal

DARK, LIGHT, WARM = "#0b6e99", "#9fb8c4", "#b5651d"
_FILLS: tuple[dict[str, Any], ...] = (
    {"color": DARK, "edgecolor": "white"},
    {"color": "white", "edgecolor": "#111111", "hatch": "////"},
    {"color": LIGHT, "edgecolor": "#111111", "hatch": ".."},
)
MAX_POINTS = 800


def grouped_shares(groups: Sequence[str], series: Mapping[str, Sequence[float]], *, xlabel: str = "") -> str:
    """Bars in % for up to three `series` (shares 0 … 1), side by side for each of `groups`."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        at, width = np.arange(len(groups)), 0.8 / len(series)
        for k, (name, shares) in enumerate(series.items()):
            offset = (k - (len(series) - 1) / 2) * width
            axes.bar(at + offset, [100 * share for share in shares], width, label=name, **_FILLS[k])
        crowded = sum(len(line) for group in groups for line in group.split("\n")[-1:]) > 60
        axes.set_xticks(at, groups, rotation=40 if crowded else 0, ha="right" if crowded else "center")
        axes.set(ylabel="share, %", xlabel=xlabel, xlim=(-0.6, max(len(groups), 3) - 0.4))
        _legend_above(axes)
        return svg(figure)


def served(names: Sequence[str], hit_bytes: Sequence[int], missed_bytes: Sequence[int]) -> str:
    """Bytes requested of each category: those that the cache served, and the rest."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        at = np.arange(len(names))[::-1]
        axes.barh(at, hit_bytes, label="from the cache", **_FILLS[0])
        axes.barh(at, missed_bytes, left=hit_bytes, label="over the WAN", **_FILLS[1])
        axes.set_yticks(at, names, fontsize=8)
        axes.set_ylim(len(names) - max(len(names), 4) - 0.6, len(names) - 0.4)
        axes.xaxis.set_major_formatter(_BYTES)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.set(xlabel="bytes requested")
        _legend_above(axes)
        return svg(figure)


def size_distribution(sizes: Sizes) -> str:
    """Shares of files and of their bytes by file size, on a log scale."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        files, in_bytes = (100 * _shares(amounts) for amounts in (sizes.files, sizes.footprint_bytes))
        axes.stairs(files, sizes.edges_bytes, fill=True, color=LIGHT, edgecolor=DARK, label="files")
        axes.stairs(in_bytes, sizes.edges_bytes, color="#111111", linestyle=(0, (4, 2)), label="bytes")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(_BYTES)
        axes.set(xlabel="file size", ylabel="share, %")
        _legend_above(axes)
        return svg(figure)


def rank_plot(ranks: Ranks) -> str:
    """Accesses of a file against its rank, both on log scales."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        axes.loglog(ranks.rank, ranks.accesses, color=DARK, marker="o", markersize=2.5)
        axes.set(xlabel="file's rank, the most read first", ylabel="accesses")
        return svg(figure)


def hits_by_days(lifetimes: Lifetimes, *, by: str) -> str:
    """Hits and their bytes by whole days: `by` is a file's `lifetime`, or its `age` at the hit."""
    hits, in_bytes = (
        (lifetimes.hits_by_lifetime, lifetimes.hit_bytes_by_lifetime)
        if by == "lifetime"
        else (lifetimes.hits_by_age, lifetimes.hit_bytes_by_age)
    )
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        edges = np.arange(hits.size + 1)
        axes.stairs(100 * _shares(hits), edges, color=LIGHT, edgecolor=DARK, fill=True, label="hits")
        axes.stairs(
            100 * _shares(in_bytes), edges, color="#111111", linestyle=(0, (4, 2)), label="bytes of hits"
        )
        what = "first to last access" if by == "lifetime" else "first access to the hit"
        axes.set(xlabel=f"days from a file's {what}", ylabel="share, %", xlim=(0, None))
        _legend_above(axes)
        return svg(figure)


def hits_against_capacity(curve: Curve, ideal: Sequence[Ideal]) -> str:
    """The exact LRU curve over all capacities, clairvoyant and bound at some of them."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        sizes = [point.capacity_bytes for point in ideal]
        highest = max([2 * max(sizes), *curve.capacity_bytes[-1:].tolist()])
        at = np.geomspace(min(sizes) / 10, highest, MAX_POINTS)
        place = np.searchsorted(curve.capacity_bytes, at, side="right")
        hits, hit_bytes = (np.concatenate([[0], total])[place] for total in (curve.hits, curve.hit_bytes))
        axes.plot(at, 100 * hit_bytes / max(1, curve.bytes_requested), color=DARK, label="LRU: bytes")
        axes.plot(
            at, 100 * hits / curve.requests, color="#5b6770", linestyle=(0, (5, 2)), label="LRU: accesses"
        )
        axes.plot(
            sizes, [100 * p.clairvoyant for p in ideal], "^", color=WARM, label="clairvoyant: bytes", zorder=3
        )
        axes.plot(
            sizes, [100 * p.bound for p in ideal], "D", mfc="none", mec="#111111", ms=9, label="bound: bytes"
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(_BYTES)
        axes.set(xlabel="capacity", ylabel="hits, %", ylim=(0, None))
        _legend_above(axes)
        return svg(figure)


def fill_level(
    time_s: IntArray, used_bytes: IntArray, *, capacity_bytes: int, watermarks: tuple[float, float]
) -> str:
    """Fill level over time in % of the capacity, with both watermarks; points are peaks of intervals."""
    starts = np.arange(0, time_s.size, max(1, time_s.size // MAX_POINTS))
    highest = np.maximum.reduceat(used_bytes, starts)
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        axes.plot(_times(time_s[starts]), 100 * highest / capacity_bytes, color=DARK)
        for level, name in zip(watermarks, ("low", "high"), strict=True):
            axes.axhline(100 * level, color="black", linewidth=0.8, linestyle=(0, (2, 4)))
            side = ("top", -2) if name == "low" else ("bottom", 2)
            axes.annotate(
                f"{name} watermark, {100 * level:.0f} %",
                (1, 100 * level),
                xycoords=("axes fraction", "data"),
                xytext=(0, side[1]),
                textcoords="offset points",
                ha="right",
                va=side[0],
                fontsize=8,
            )
        axes.set(ylabel=f"fill, % of {format_bytes(capacity_bytes)}", ylim=(0, 112))
        dated(axes)
        return svg(figure)


def hits_and_misses(day: IntArray, hits: IntArray, misses: IntArray) -> str:
    """Hits and misses per day as steps, and the two-week running mean of each as a line."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        edges = _times(np.append(day, day[-1] + 1) * DAY_S)
        noon = _times(day * DAY_S + DAY_S // 2)
        axes.stairs(hits, edges, fill=True, color=LIGHT, label="hits")
        axes.stairs(misses, edges, color="#111111", linestyle=(0, (1, 1)), label="misses")
        axes.plot(noon, running_mean(hits), color=DARK, linewidth=2, label="hits, two-week mean")
        axes.plot(
            noon,
            running_mean(misses),
            color=WARM,
            linewidth=2,
            linestyle=(0, (5, 2)),
            label="misses, two-week mean",
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
        axes.set(ylabel="accesses per day", ylim=(0, None))
        dated(axes)
        _legend_above(axes)
        return svg(figure)


def hours(names: Sequence[str], hs06_hours: Sequence[float]) -> str:
    """HS06-hours of the jobs in each case, one bar each."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        at = np.arange(len(names))[::-1]
        bars = axes.barh(at, hs06_hours, height=0.5, **_FILLS[0])
        axes.bar_label(bars, [f" {count(value)}" for value in hs06_hours])
        axes.set_yticks(at, names)
        axes.margins(x=0.25)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
        axes.grid(visible=False, axis="y")
        axes.set(xlabel="HS06-hours")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        return svg(figure)


_BYTES = FuncFormatter(lambda value, _: format_bytes(value) if value else "0")


def _shares(amounts: IntArray) -> FloatArray:
    return np.asarray(amounts / max(1, int(amounts.sum())), np.float64)


def _times(time_s: IntArray) -> npt.NDArray[np.datetime64]:
    return time_s.astype("datetime64[s]")


def _legend_above(axes: Axes) -> None:
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
