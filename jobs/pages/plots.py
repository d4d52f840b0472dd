"""Plots of policies and models: lines differ by dash and marker, not by colour alone."""

import datetime as dt
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.ticker import FuncFormatter

from features.common.arrays import FloatArray, IntArray
from features.common.errors import printable
from features.common.times import DAY_S, as_of_label, day_label
from features.common.units import duration_label, format_bytes
from features.results import LRU
from jobs.ground.text import Row, bounds, count, percent
from jobs.pages.drawing import DARK, LIGHT, STYLE, WARM, Plot, Point, Zoom, dated, from_zero
from jobs.pages.verdicts import KNOWING
from jobs.pages.verdicts import sizes as at_size
from replay.study.use import running_mean

POLICIES = ("lru", "lru+plan", "clairvoyant", "bound")  # with styles of their own, as in the legend
_COLOURS = {"lru": "#5b6770", "lru+plan": DARK, "clairvoyant": WARM, "bound": "#111111"}
_DASHES = {"lru": (0, (5, 2)), "lru+plan": "solid", "clairvoyant": (0, (1, 1)), "bound": (0, (5, 1, 1, 1))}
_MARKERS = {"lru": "s", "lru+plan": "o", "clairvoyant": "^", "bound": "D"}
_OTHER_COLOURS = (
    *("#2e7d32", "#8e24aa", "#c62828", "#00838f", "#6d4c41", "#ad1457", "#9e9d24"),
    *("#1a237e", "#e65100", "#558b2f", "#4527a0", "#827717", "#00695c", "#d81b60"),
)
"""As many as policies that a page shows together."""
_OTHER_DASHES = ("solid", (0, (3, 1)), (0, (7, 1, 1, 1)))
_OTHER_MARKERS = ("v", "P", "X", "<", ">", "*", "h", "p", "d", "8")
_FILLS = ("full", "none", "left", "bottom")
_SPREAD = 0.6  # width shared by the policies at one capacity; capacities are 1 apart
_CAPACITY = {"capacity_bytes": "capacity", "capacity_fraction": "capacity, % of the bytes read"}
_GAP = "gap to the bound closed, %"
_Amounts: TypeAlias = IntArray | FloatArray
BYTES_AXIS = FuncFormatter(lambda value, _: format_bytes(value) if value else "0")
COUNTS_AXIS = FuncFormatter(lambda value, _: count(value))


def rank(policy: str) -> tuple[int, str]:
    """The sort key of a policy in legends and tables: LRU first, the bound last."""
    order = (*POLICIES[:2], None, *POLICIES[2:])  # others come between
    return order.index(policy if policy in POLICIES else None), policy


def hit_ratio_against_capacity(replays: Sequence[Row], capacity: str = "capacity_bytes") -> Plot:
    """Byte hit ratio of each policy at each capacity; no policy can exceed the bound's.

    `capacity`: the column of the capacities as they were asked for. One capacity: bars, the best on top.
    """
    if len({row[capacity] for row in replays}) == 1:
        best = next((row["byte_hit_ratio"] for row in replays if row["policy"] == "bound"), None)
        others = [row for row in replays if row["policy"] != "bound"] or replays
        return _ranked(others, "byte_hit_ratio", "byte hit ratio, %", best=best)
    with mpl.rc_context(STYLE):
        plot = Plot()
        for policy, style in styles(_present(replays)).items():
            rows = sorted((r for r in replays if r["policy"] == policy), key=lambda r: r["capacity_bytes"])
            points = [_ratio_point(r, "byte_hit_ratio", capacity) for r in rows]
            plot.line(policy, points, policy=policy, **style)
        if capacity == "capacity_bytes":
            plot.axes.xaxis.set_major_formatter(BYTES_AXIS)
        plot.axes.set(xlabel=_CAPACITY[capacity], ylabel="byte hit ratio, %")
        from_zero(plot.axes)
        return plot


def bars(labels: Sequence[str], values: Sequence[float], xlabel: str, looks: Sequence[Any] = ()) -> Plot:
    """A bar per label, the first at the bottom; `looks`: colour and hatch of each."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="y", height=1.2 + 0.24 * max(4, len(values)))
        axes, at = plot.axes, range(len(values))
        drawn = axes.barh(at, values, 0.7, color=DARK, edgecolor="#111111", linewidth=0.6)
        for bar, (colour, hatch) in zip(drawn, looks, strict=False):
            bar.set(facecolor=colour, hatch=hatch)
        plot.add("", drawn, map(Point, values, at, labels))
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(at, list(map(printable, labels)), fontsize=9)
        axes.grid(visible=False, axis="y")
        axes.set(xlabel=xlabel, ylim=(-0.6, max(4, len(values)) - 0.4))
        return plot


def _ranked(rows: Sequence[Row], key: str, xlabel: str, *, best: float | None) -> Plot:
    """A bar per policy, the best on top; `best`: what none exceeds, a line."""
    ordered = sorted(rows, key=lambda row: (row[key], str(row["policy"])))
    values = [100 * row[key] for row in ordered]
    labels = [f"{row['policy']}, {percent(row[key], 1)}" for row in ordered]
    plot = bars(labels, values, xlabel, [_bar_style(str(row["policy"])) for row in ordered])
    with mpl.rc_context(STYLE):
        if f"{key}_lower" in ordered[0]:
            whiskers = list(zip(*map(_whiskers, ordered), strict=True))
            plot.axes.errorbar(
                values, range(len(values)), xerr=whiskers, fmt="none", ecolor="#111111", capsize=3
            )
        if best is not None:
            plot.axes.axvline(100 * best, color=_COLOURS["bound"], linestyle=_DASHES["bound"])
            place: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            label = f"bound, {percent(best, 1)}"
            plot.axes.annotate(label, (100 * best, 1), xytext=(0, 3), ha="right", va="bottom", **place)
        return plot


def _bar_style(policy: str) -> tuple[str, str]:
    """Colour and hatch of a policy's bar: LRU is grey, what knows the future is hatched."""
    if policy in KNOWING:
        return "white", "////"
    return (_COLOURS["lru"] if policy == LRU else DARK), ""


def _ratio_point(row: Row, key: str, capacity: str = "capacity_fraction") -> Point:
    size, share = row["capacity_bytes"], row["capacity_fraction"]
    ratio = (
        f"{key.removeprefix('clairvoyant_').removeprefix('bound_').replace('_', ' ')} {percent(row[key], 1)}"
    )
    where = f"at {format_bytes(size)} ({percent(share, 1)} of the bytes read)"
    x = size if capacity == "capacity_bytes" else share * 100
    return Point(x, row[key] * 100, f"{ratio} {where}", size)


def gap_closed(rows: Sequence[Row], capacity: str = "capacity_fraction") -> Plot:
    """Share of the gap to the bound that each policy closes at each capacity, with its 95 % interval.

    `rows`: of `evaluate`; `capacity`: the column by which capacities were given. One: bars, the best on top.
    """
    judged = [r for r in rows if r["byte_gap_closed"] is not None and r["policy"] not in ("lru", "bound")]
    capacities = sorted({r[capacity] for r in judged})
    if len(capacities) == 1:
        return _ranked(judged, "byte_gap_closed", _GAP, best=1)
    looks = styles(_present(judged))
    with mpl.rc_context(STYLE):
        plot, asides = Plot(), []
        for k, (policy, look) in enumerate(looks.items()):
            mine = [r for r in judged if r["policy"] == policy]
            aside = _SPREAD * ((k + 0.5) / len(looks) - 0.5)
            asides.append(aside)
            points = [_gap_point(r, capacities.index(r[capacity]) + aside, capacity) for r in mine]
            drawn = plot.axes.errorbar(
                [point.x for point in points],
                [point.y for point in points],
                yerr=list(zip(*(_whiskers(r) for r in mine), strict=True)),
                **look | {"linestyle": "none", "capsize": 3},
            )
            plot.add(policy, drawn, points, policy=policy)
        plot.axes.axhline(0, color="black", linewidth=0.8, gid="@l")
        in_bytes = capacity == "capacity_bytes"
        plot.axes.set_xticks(
            range(len(capacities)), [format_bytes(c) if in_bytes else f"{100 * c:g}" for c in capacities]
        )
        plot.axes.set(xlabel=_CAPACITY[capacity], ylabel=_GAP)
        plot.zoom = Zoom(capacities, asides, _SPREAD)
        return plot


def _gap_point(row: Row, at: float, capacity: str) -> Point:
    gap, low, high = (row[f"byte_gap_closed{end}"] for end in ("", "_lower", "_upper"))
    label = f"{percent(gap, 1)} of the gap ({bounds(low, high, 1)}) at {at_size([row], capacity)}"
    return Point(at, 100 * gap, label, row[capacity])


def _whiskers(row: Row) -> tuple[float, float]:
    """How far the bounds lie below and above the value, in %; NaN: there are none."""
    gap, low, high = (row[f"byte_gap_closed{end}"] for end in ("", "_lower", "_upper"))
    if low is None:
        return math.nan, math.nan
    return max(0.0, 100 * (gap - low)), max(0.0, 100 * (high - gap))


def lru_against_capacity(points: Sequence[Row]) -> Plot:
    """LRU's hit and byte hit ratio over capacity, and the best byte hit ratio; `points`: of a curve."""
    lines = (
        ("hit_ratio", "LRU, requests", DARK, "solid", "o"),
        ("byte_hit_ratio", "LRU, bytes", _COLOURS["lru"], _DASHES["lru"], "s"),
        ("clairvoyant_byte_hit_ratio", "clairvoyant, bytes", _COLOURS["clairvoyant"], "none", "^"),
        ("bound_byte_hit_ratio", "bound, bytes", _COLOURS["bound"], "none", "D"),
    )
    with mpl.rc_context(STYLE):
        plot = Plot()
        for key, label, colour, dash, marker in lines:
            points_of = [_ratio_point(r, key) for r in points if r[key] is not None]
            look: Any = {"color": colour, "linestyle": dash, "marker": marker, "markersize": 4}
            if points_of:
                plot.line(label, points_of, **look)
        axes = plot.axes
        axes.set(xlabel=_CAPACITY["capacity_fraction"], ylabel="hit ratio, %", xscale="log")
        from_zero(axes)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        return plot


def hit_ratio_by_cache(rows: Sequence[Row]) -> Plot:
    named = [
        (f"{row['cache']}, {percent(row['byte_hit_ratio'], 1)}", 100 * row["byte_hit_ratio"]) for row in rows
    ]
    labels, ratios = zip(*reversed(named), strict=True)
    return bars(labels, ratios, "byte hit ratio, %")


def fill_level(
    levels: Mapping[str, Sequence[tuple[dt.datetime, int]]],
    *,
    capacity_bytes: int,
    watermarks: tuple[float, float],
) -> Plot:
    """Fill level over time in %, with both watermarks. `levels`: time and bytes by policy ("": one)."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        for policy, level in levels.items():
            shares = [(at, used / capacity_bytes, used) for at, used in level]
            points = [
                Point(at, 100 * x, f"{percent(x, 1)} full ({format_bytes(used)}) at {at:%Y-%m-%d %H:%M} UTC")
                for at, x, used in shares
            ]
            look = line_style(policy) if policy else {"color": DARK}
            plot.line(policy, points, policy=policy or None, **look)
        for share, name, above in zip(watermarks, ("low", "high"), (-2, 2), strict=True):
            plot.axes.axhline(100 * share, color="black", linewidth=0.8, linestyle=(0, (2, 4)))
            place: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "fontsize": 8}
            place |= {"xytext": (3, above), "ha": "left", "va": "top" if above < 0 else "bottom"}
            plot.axes.annotate(f"{name} {100 * share:.0f} %", (1, 100 * share), **place)
        plot.axes.set(ylabel=f"fill, % of {format_bytes(capacity_bytes)}", ylim=(0, 112))
        dated(plot.axes)
        return plot


def hits_and_misses_over_time(
    start_s: IntArray, hits: _Amounts, misses: _Amounts, *, step_s: int = DAY_S, unit: str = "accesses"
) -> Plot:
    """Hits and misses per day or hour as steps; of days the two-week running mean of each as a line, too.

    `start_s`: of each step of `step_s` seconds, since 1970; `unit`: what is counted, bytes for example.
    """
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        axes, label_of = plot.axes, day_label if step_s == DAY_S else as_of_label
        edges = as_times(np.append(start_s, start_s[-1] + step_s))
        middle, labels = as_times(start_s + step_s // 2), list(map(label_of, start_s.tolist()))
        text = format_bytes if unit == "bytes" else lambda amount: f"{count(amount)} {unit}"

        def add(label: str, drawn: Any, amounts: _Amounts) -> None:
            values = amounts.tolist()
            texts = [f"{text(n)}, {when}" for n, when in zip(values, labels, strict=True)]
            plot.add(label, drawn, map(Point, middle, values, texts))

        add("hits", axes.stairs(hits, edges, fill=True, color=LIGHT), hits)
        add("misses", axes.stairs(misses, edges, color="#111111", linestyle=(0, (1, 1))), misses)
        looks: dict[str, Any] = {"hits": {"color": DARK}, "misses": {"color": WARM, "linestyle": (0, (5, 2))}}
        for (name, look), amounts in zip(looks.items(), (hits, misses), strict=True):
            if step_s == DAY_S:
                mean = running_mean(amounts)
                (line,) = axes.plot(middle, mean, linewidth=2, **look)
                add(f"{name}, two-week mean", line, mean)
        axes.yaxis.set_major_formatter(BYTES_AXIS if unit == "bytes" else COUNTS_AXIS)
        axes.set(ylabel=f"{unit} per {'day' if step_s == DAY_S else 'hour'}", ylim=(0, None))
        dated(axes)
        return plot


def calibration(bins: Sequence[Row]) -> Plot:
    """Observed against predicted share per horizon, on held-out days. `bins`: rows of reliability."""
    with mpl.rc_context(STYLE):
        plot = Plot()
        plot.axes.plot([0, 100], [0, 100], color="black", linewidth=0.8, linestyle=(0, (2, 4)))
        place: Any = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
        plot.axes.annotate("perfect", (100, 100), annotation_clip=False, **place)
        looks = zip(itertools.cycle("osD^v<>P"), itertools.cycle(_OTHER_DASHES), strict=False)
        horizons = sorted({r["horizon_s"] for r in bins})
        for (marker, dash), horizon in zip(looks, horizons, strict=False):
            rows = sorted((r for r in bins if r["horizon_s"] == horizon), key=lambda r: r["bin"])
            pairs = [(row["predicted"], row["observed"]) for row in rows]
            points = [
                Point(100 * p, 100 * read, f"predicted {percent(p, 1)}, {percent(read, 1)} were read")
                for p, read in pairs
            ]
            look: Any = {"marker": marker, "markersize": 4, "linestyle": dash}
            plot.line(f"within {duration_label(horizon)}", points, **look)
        plot.axes.set(xlabel="predicted chance of a read, %", ylabel="files that were read, %")
        plot.axes.set(xlim=(0, 100), ylim=(0, 100))
        return plot


def _present(rows: Sequence[Row]) -> list[str]:
    return sorted({str(r["policy"]) for r in rows}, key=rank)


def styles(policies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The style of each policy; policies without one of their own take the next of a cycle."""
    others = _other_styles()
    known = {p: {**line_style(p), "marker": _MARKERS[p]} for p in POLICIES}
    return {policy: known[policy] if policy in known else next(others) for policy in policies}


def _other_styles() -> Iterator[dict[str, Any]]:
    colours, dashes = itertools.cycle(_OTHER_COLOURS), itertools.cycle(_OTHER_DASHES)
    for fill in itertools.cycle(_FILLS):
        for marker in _OTHER_MARKERS:
            look = {"color": next(colours), "linestyle": next(dashes), "marker": marker}
            yield look | {"fillstyle": fill, "markerfacecoloralt": "white"}


def line_style(policy: str) -> dict[str, Any]:
    """Colour and dash of a policy of `POLICIES`."""
    return {"color": _COLOURS[policy], "linestyle": _DASHES[policy]}


def saved_by_day(days: Sequence[Row]) -> Plot:
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        at = [dt.datetime.fromisoformat(str(row["day"])) for row in days]
        saved = [row["saved_wan_bytes"] for row in days]
        bars = plot.axes.bar(at, saved, width=0.8, color=DARK)  # type: ignore[arg-type]
        labels = [f"{format_bytes(row['saved_wan_bytes'])} saved on {row['day']}" for row in days]
        plot.add("", bars, map(Point, at, saved, labels))
        plot.axes.axhline(0, color="#111111", linewidth=0.8)
        plot.axes.yaxis.set_major_formatter(BYTES_AXIS)
        plot.axes.set(ylabel="WAN saved per day")
        dated(plot.axes)
        return plot


def as_times(time_s: IntArray) -> npt.NDArray[np.datetime64]:
    return time_s.astype("datetime64[s]")
