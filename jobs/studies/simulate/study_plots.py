"""Plots of studies: bars differ by hatch, lines by dash and marker."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from features.common.arrays import IntArray
from features.common.units import format_bytes
from jobs.ground.text import Row, count, percent
from jobs.pages.drawing import DARK, LIGHT, STYLE, WARM, Plot, Point, from_zero
from jobs.pages.plots import BYTES_AXIS, COUNTS_AXIS, bars, line_style, styles
from replay.curve import Curve
from replay.study.study import Ideal
from replay.study.use import HitsByAge, Ranks, Sizes

_FILLS: tuple[dict[str, Any], ...] = (
    {"color": DARK, "edgecolor": "white"},
    {"color": "white", "edgecolor": "#111111", "hatch": "////"},
    {"color": LIGHT, "edgecolor": "#111111", "hatch": ".."},
)
_AREA: dict[str, Any] = {"color": LIGHT, "edgecolor": DARK, "fill": True}
_OUTLINE: dict[str, Any] = {"color": "#111111", "linestyle": (0, (4, 2))}
_LRU_BYTES: dict[str, Any] = {"color": DARK}
_LRU_ACCESSES: dict[str, Any] = {"color": "#5b6770", "linestyle": (0, (5, 2))}
_CLAIRVOYANT: dict[str, Any] = {"linestyle": "none", "marker": "^", "color": WARM, "zorder": 3}
_BOUND: dict[str, Any] = {"linestyle": "none", "marker": "D", "mfc": "none", "mec": "#111111", "ms": 8}
_OPTIONS = {"LRU": "lru", "a steward": "steward", "the bound": "bound", "LRU, more disk": "lru, more disk"}
_FEW = 20  # with fewer points, a line shows each of them
MAX_POINTS = 800
_READ_POINTS = 200  # points of a smooth line that can be read


def grouped_shares(groups: Sequence[str], series: Mapping[str, Sequence[float]], *, xlabel: str = "") -> Plot:
    """Bars in % for up to three `series` (shares 0 … 1), side by side for each of `groups`."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        at, width = np.arange(len(groups)), 0.8 / len(series)
        for k, (name, shares) in enumerate(series.items()):
            x, y = at + (k - (len(series) - 1) / 2) * width, [100 * share for share in shares]
            labels = [
                f"{share:.1f} %, {group.replace(chr(10), ' ')}"
                for share, group in zip(y, groups, strict=True)
            ]
            plot.add(name, plot.axes.bar(x, y, width, **_FILLS[k]), map(Point, x, y, labels))
        crowded = sum(len(line) for group in groups for line in group.split("\n")[-1:]) > 60
        lines = [group if crowded or "\n" in group else group.replace(" ", "\n") for group in groups]
        plot.axes.set_xticks(at, lines, rotation=40 if crowded else 0, ha="right" if crowded else "center")
        plot.axes.set(ylabel="share, %", xlabel=xlabel, xlim=(-0.6, max(len(groups), 3) - 0.4))
        return plot


def served(names: Sequence[str], hit_bytes: Sequence[int], missed_bytes: Sequence[int]) -> Plot:
    """Bytes requested of each category: those that the cache served, and the rest."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="y")
        axes = plot.axes
        at = np.arange(len(names))[::-1]
        ends = [hit + missed for hit, missed in zip(hit_bytes, missed_bytes, strict=True)]
        hit = axes.barh(at, hit_bytes, **_FILLS[0])
        missed = axes.barh(at, missed_bytes, left=hit_bytes, **_FILLS[1])
        for label, bars, x, n_bytes in (
            ("from the cache", hit, hit_bytes, hit_bytes),
            ("over the WAN", missed, ends, missed_bytes),
        ):
            labels = [f"{format_bytes(n)} of {name}" for n, name in zip(n_bytes, names, strict=True)]
            plot.add(label, bars, map(Point, x, at, labels))
        axes.set_yticks(at, names, fontsize=8)
        axes.set_ylim(len(names) - max(len(names), 4) - 0.6, len(names) - 0.4)
        axes.xaxis.set_major_formatter(BYTES_AXIS)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.set(xlabel="bytes requested")
        return plot


def size_distribution(sizes: Sizes) -> Plot:
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        edges = sizes.edges_bytes
        ranges = [f"{format_bytes(low)} to {format_bytes(high)}" for low, high in itertools.pairwise(edges)]
        amounts = {"files": sizes.files, "bytes": sizes.footprint_bytes}
        _add_shares(plot, edges, np.sqrt(edges[:-1] * edges[1:]), ranges, amounts)
        plot.axes.set_xscale("log")
        plot.axes.xaxis.set_major_formatter(BYTES_AXIS)
        plot.axes.set(xlabel="file size", ylabel="share, %")
        return plot


def rank_plot(ranks: Ranks) -> Plot:
    with mpl.rc_context(STYLE):
        plot = Plot()
        (line,) = plot.axes.loglog(ranks.rank, ranks.accesses, color=DARK, marker="o", markersize=2.5)
        plot.add(
            "",
            line,
            [
                Point(rank, accesses, f"{count(accesses)} accesses of the file of rank {count(rank)}")
                for rank, accesses in zip(ranks.rank.tolist(), ranks.accesses.tolist(), strict=True)
            ],
        )
        for axis in (plot.axes.xaxis, plot.axes.yaxis):
            axis.set_major_formatter(COUNTS_AXIS)
            axis.set_minor_formatter("")
        plot.axes.set(xlabel="file's rank, the most read first", ylabel="accesses")
        return plot


def hits_by_days(ages: HitsByAge) -> Plot:
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        edges = np.arange(ages.hits.size + 1)
        days = [f"{k} to {k + 1} days" for k in range(ages.hits.size)]
        _add_shares(plot, edges, edges[:-1] + 0.5, days, {"hits": ages.hits, "bytes of hits": ages.hit_bytes})
        plot.axes.set(xlabel="days from a file's first access to the hit", ylabel="share, %", xlim=(0, None))
        return plot


def hits_against_capacity(curve: Curve, ideal: Sequence[Ideal]) -> Plot:
    """The exact LRU curve over all capacities, clairvoyant and bound at some of them."""
    with mpl.rc_context(STYLE):
        plot = Plot()
        axes = plot.axes
        sizes = [point.capacity_bytes for point in ideal]
        highest = max([2 * max(sizes), *curve.capacity_bytes[-1:].tolist()])
        at = np.geomspace(min(sizes) / 10, highest, MAX_POINTS)
        place = np.searchsorted(curve.capacity_bytes, at, side="right")
        hits, hit_bytes = (np.concatenate([[0], total])[place] for total in (curve.hits, curve.hit_bytes))
        lines = {
            "bytes": (hit_bytes / max(1, curve.bytes_requested), _LRU_BYTES),
            "accesses": (hits / curve.requests, _LRU_ACCESSES),
        }
        for what, (ratio, look) in lines.items():
            (line,) = axes.plot(at, 100 * ratio, **look)
            step = MAX_POINTS // _READ_POINTS
            plot.add(f"LRU: {what}", line, _served_at(at[::step], ratio[::step], what))
        marks = {
            "clairvoyant": ([p.clairvoyant for p in ideal], _CLAIRVOYANT),
            "bound": ([p.bound for p in ideal], _BOUND),
        }
        for name, (shares, look) in marks.items():
            (drawn,) = axes.plot(sizes, [100 * share for share in shares], **look)
            plot.add(f"{name}: bytes", drawn, _served_at(sizes, shares, "bytes"))
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(BYTES_AXIS)
        axes.set(xlabel="capacity", ylabel="hits, %")
        from_zero(axes)
        return plot


def _served_at(capacities: Any, shares: Any, what: str) -> Iterator[Point]:
    for size, share in zip(capacities, shares, strict=True):
        label = f"{percent(share, 1)} of the {what} at {format_bytes(size)}"
        yield Point(float(size), 100 * float(share), label, capacity=size)


def hours(names: Sequence[str], hs06_hours: Sequence[float]) -> Plot:
    """HS06-hours of the jobs in each case, one bar each, the first on top."""
    labels = [f"{name}, {count(value)} HS06-hours" for name, value in zip(names, hs06_hours, strict=True)]
    plot = bars(labels[::-1], hs06_hours[::-1], "HS06-hours")
    plot.axes.xaxis.set_major_formatter(COUNTS_AXIS)
    return plot


def _add_shares(
    plot: Plot, edges: Any, middles: Any, ranges: Sequence[str], amounts: Mapping[str, IntArray]
) -> None:
    """Add the shares of two `amounts` in each of `ranges`, in %: the first as an area, then an outline."""
    for (label, of_ranges), look in zip(amounts.items(), (_AREA, _OUTLINE), strict=True):
        shares = 100 * (of_ranges / max(1, int(of_ranges.sum())))
        points = [
            Point(at, share, f"{share:.1f} %, {where}")
            for at, share, where in zip(middles.tolist(), shares.tolist(), ranges, strict=True)
        ]
        plot.add(label, plot.axes.stairs(shares, edges, **look), points)


def traffic_against_disk(points: Sequence[Row]) -> Plot:
    """WAN traffic per day over the disk saved, a mark per capacity. `points`: of `storage`."""
    with mpl.rc_context(STYLE):
        plot = Plot()
        at, traffic = ([p[key] for p in points] for key in ("saved_bytes", "wan_bytes_per_day"))
        (drawn,) = plot.axes.plot(at, traffic, "o--", color=DARK, markersize=5, clip_on=False)
        labels = [
            f"a cache of {format_bytes(p['capacity_bytes'])}: {format_bytes(p['saved_bytes'])} less disk, "
            f"{format_bytes(p['wan_bytes_per_day'])} more WAN traffic per day"
            for p in points
        ]
        plot.add("", drawn, map(Point, at, traffic, labels))
        for p, x, y in zip(points, at, traffic, strict=True):
            name = format_bytes(p["capacity_bytes"])
            plot.axes.annotate(name, (x, y), xytext=(5, -13), textcoords="offset points")
        plot.axes.margins(x=0.1)
        plot.axes.set(xlabel="less disk", ylabel="more WAN traffic per day")
        _in_bytes(plot.axes)
        return plot


def wan_against_capacity(curve: Sequence[tuple[int, float]], options: Sequence[Row]) -> Plot:
    """Bytes fetched per day: LRU's by capacity (a line), and those of each option (a mark).

    `curve`: capacity and bytes per day; `options`: rows of `jobs.studies.simulate.worth.Option`.
    """
    looks = styles(list(_OPTIONS.values()))
    with mpl.rc_context(STYLE):
        plot = Plot()
        points = [_fetched_point("LRU", size, per_day) for size, per_day in curve]
        few = {"marker": "o", "clip_on": False} if len(points) < _FEW else {}
        label = "LRU at these capacities" if few else "LRU at every capacity"
        plot.line(label, points, **line_style("lru") | few)
        for row in (option for option in options if option["option"] in _OPTIONS):
            point = _fetched_point(row["option"], row["capacity_bytes"], row["wan_bytes_per_day"])
            look = looks[_OPTIONS[row["option"]]] | {"linestyle": "none"}
            plot.line(row["option"], [point], **look)
        plot.axes.set(xlabel="capacity", ylabel="fetched per day")
        _in_bytes(plot.axes)
        return plot


def _in_bytes(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(BYTES_AXIS)
    from_zero(axes)


def _fetched_point(name: str, capacity_bytes: int, bytes_per_day: float) -> Point:
    label = f"{name}, {format_bytes(capacity_bytes)}: {format_bytes(bytes_per_day)} fetched per day"
    return Point(capacity_bytes, bytes_per_day, label)
