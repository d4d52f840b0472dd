"""Plots of policies and models: lines differ by dash and marker, not by colour alone."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.ticker import FuncFormatter

from features.common.arrays import FloatArray, IntArray
from features.common.times import DAY_S, as_of_label, day_label
from features.common.units import duration_label, format_bytes
from jobs.ground.text import Row, bounds, count, percent
from jobs.pages.drawing import DARK, LIGHT, STYLE, WARM, Plot, Point, Zoom, dated
from replay.study.use import running_mean

POLICIES = ("lru", "lru+plan", "clairvoyant", "bound")
"""Policies with a style of their own, in the order of the legend; others come between them."""

_COLOURS = {"lru": "#5b6770", "lru+plan": "#0b6e99", "clairvoyant": "#b5651d", "bound": "#111111"}
_DASHES = {"lru": (0, (5, 2)), "lru+plan": "solid", "clairvoyant": (0, (1, 1)), "bound": (0, (5, 1, 1, 1))}
_HATCHES = {"lru": ("", "///"), "lru+plan": ("..", "\\\\\\")}
"""Of hits and of misses."""
_MARKERS = {"lru": "s", "lru+plan": "o", "clairvoyant": "^", "bound": "D"}

_OTHER_COLOURS = (
    *("#2e7d32", "#8e24aa", "#c62828", "#00838f", "#6d4c41", "#ad1457", "#9e9d24"),
    *("#1a237e", "#e65100", "#558b2f", "#4527a0", "#827717", "#00695c", "#d81b60"),
)
"""As many as policies that a page shows together."""
_OTHER_DASHES = ("solid", (0, (3, 1)), (0, (7, 1, 1, 1)))
_OTHER_MARKERS = ("v", "P", "X", "<", ">", "*", "h", "p", "d", "8")
_FILLS = ("full", "none", "left", "bottom")
_SPREAD = 0.6
"""Width shared by the policies at one capacity; capacities are 1 apart."""
_OPTIONS = {"LRU": "lru", "a steward": "steward", "the bound": "bound", "LRU, more disk": "lru, more disk"}
_FEW = 20
"""With fewer points, a line shows each of them."""
_Amounts: TypeAlias = IntArray | FloatArray
_TERA = 1e12


def rank(policy: str) -> tuple[int, str]:
    """The sort key of a policy in legends and tables: LRU first, the bound last."""
    if policy in POLICIES:
        at = POLICIES.index(policy)
        return (at if at < 2 else at + 1), policy
    return 2, policy


def hit_ratio_against_capacity(replays: Sequence[Row]) -> Plot:
    """Byte hit ratio of each policy at each capacity; no policy can exceed the bound's."""
    with mpl.rc_context(STYLE):
        plot = Plot()
        for policy, style in styles(_present(replays)).items():
            rows = sorted((r for r in replays if r["policy"] == policy), key=lambda r: r["capacity_bytes"])
            at = [r["capacity_fraction"] * 100 for r in rows]
            (line,) = plot.axes.plot(at, [r["byte_hit_ratio"] * 100 for r in rows], **style)
            points = [_ratio_point(r, "byte_hit_ratio") for r in rows]
            plot.add(policy, line, points, policy=policy)
        plot.axes.set(xlabel="capacity, % of the bytes read", ylabel="byte hit ratio, %", ylim=(0, None))
        return plot


def _ratio_point(row: Row, key: str) -> Point:
    size, share = row["capacity_bytes"], row["capacity_fraction"]
    said = (
        f"{key.removeprefix('clairvoyant_').removeprefix('bound_').replace('_', ' ')} {percent(row[key], 1)}"
    )
    where = f"at {format_bytes(size)} ({percent(share, 1)} of the bytes read)"
    return Point(share * 100, row[key] * 100, f"{said} {where}", size)


def gap_closed(rows: Sequence[Row]) -> Plot:
    """Gap to the bound closed by each policy at each capacity, with its limits. `rows`: of `evaluate`."""
    judged = [r for r in rows if r["byte_gap_closed"] is not None and r["policy"] not in ("lru", "bound")]
    fractions = sorted({r["capacity_fraction"] for r in judged})
    looks = styles(_present(judged))
    with mpl.rc_context(STYLE):
        plot, asides = Plot(), []
        for k, (policy, look) in enumerate(looks.items()):
            mine = [r for r in judged if r["policy"] == policy]
            aside = _SPREAD * ((k + 0.5) / len(looks) - 0.5)
            asides.append(aside)
            points = [_gap_point(r, fractions.index(r["capacity_fraction"]) + aside) for r in mine]
            drawn = plot.axes.errorbar(
                [point.x for point in points],
                [point.y for point in points],
                yerr=list(zip(*(_whiskers(r) for r in mine), strict=True)),
                **look | {"linestyle": "none", "capsize": 3},
            )
            plot.add(policy, drawn, points, policy=policy)
        plot.axes.axhline(0, color="black", linewidth=0.8, gid="@l")
        plot.axes.set_xticks(range(len(fractions)), [f"{100 * f:g}" for f in fractions])
        plot.axes.set(xlabel="capacity, % of the bytes read", ylabel="gap to the bound closed, %")
        plot.zoom = Zoom(fractions, asides, _SPREAD)
        return plot


def _gap_point(row: Row, at: float) -> Point:
    gap, low, high = (row[f"byte_gap_closed{end}"] for end in ("", "_lower", "_upper"))
    share = row["capacity_fraction"]
    said = f"{percent(gap, 1)} of the gap ({bounds(low, high, 1)})"
    return Point(at, 100 * gap, f"{said} at {percent(share, 1)} of the bytes read", share)


def _whiskers(row: Row) -> tuple[float, float]:
    """How far the limits lie below and above the value, in %; NaN: there are none."""
    gap, low, high = (row[f"byte_gap_closed{end}"] for end in ("", "_lower", "_upper"))
    if low is None:
        return math.nan, math.nan
    return max(0.0, 100 * (gap - low)), max(0.0, 100 * (high - gap))


def lru_against_capacity(points: Sequence[Row]) -> Plot:
    """LRU's hit and byte hit ratio over capacity, and the best byte hit ratio; `points`: of a curve."""
    lines = (
        ("hit_ratio", "LRU, requests", "#0b6e99", "solid", "o"),
        ("byte_hit_ratio", "LRU, bytes", _COLOURS["lru"], _DASHES["lru"], "s"),
        ("clairvoyant_byte_hit_ratio", "clairvoyant, bytes", _COLOURS["clairvoyant"], "none", "^"),
        ("bound_byte_hit_ratio", "bound, bytes", _COLOURS["bound"], "none", "D"),
    )
    with mpl.rc_context(STYLE):
        plot = Plot()
        for key, label, colour, dash, marker in lines:
            points_of = [_ratio_point(r, key) for r in points if r[key] is not None]
            look: Any = {"color": colour, "linestyle": dash, "marker": marker, "markersize": 4}
            (line,) = plot.axes.plot([p.x for p in points_of], [p.y for p in points_of], **look)
            if points_of:
                plot.add(label, line, points_of)
        axes = plot.axes
        axes.set(xlabel="capacity, % of the bytes read", ylabel="hit ratio, %", ylim=(0, None), xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
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
        (line,) = plot.axes.plot([p.x for p in points], [p.y for p in points], **_line("lru") | few)
        plot.add("LRU at these capacities" if few else "LRU at every capacity", line, points)
        for row in (one for one in options if one["option"] in _OPTIONS):
            point = _fetched_point(row["option"], row["capacity_bytes"], row["wan_bytes_per_day"])
            look = looks[_OPTIONS[row["option"]]] | {"linestyle": "none"}
            (mark,) = plot.axes.plot([point.x], [point.y], **look)
            plot.add(row["option"], mark, [point])
        plot.axes.set(xlabel="capacity, TB", ylabel="fetched, TB per day", ylim=(0, None))
        return plot


def _fetched_point(name: str, capacity_bytes: int, bytes_per_day: float) -> Point:
    said = f"{name}, {format_bytes(capacity_bytes)}: {format_bytes(bytes_per_day)} fetched per day"
    return Point(capacity_bytes / _TERA, bytes_per_day / _TERA, said)


def hit_ratio_by_cache(rows: Sequence[Row]) -> Plot:
    """Byte hit ratio of each cache of a fleet, and of all together."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        names = [str(row["cache"]) for row in rows]
        ratios = [100 * row["byte_hit_ratio"] for row in rows]
        bars = plot.axes.bar(range(len(names)), ratios, color="#5b6770", edgecolor="black")
        said = [f"{n}: byte hit ratio {r:.1f} %" for n, r in zip(names, ratios, strict=True)]
        plot.add("", bars, map(Point, range(len(names)), ratios, said))
        plot.axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > 6 else 0)
        plot.axes.set(ylabel="byte hit ratio, %", ylim=(0, None))
        return plot


def fill_with_watermarks(fills: Sequence[Row], *, watermarks: tuple[float, float]) -> Plot:
    """Fill level of one capacity's caches over time. `fills`: rows of replay_fills, at least one."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        capacity = fills[0]["capacity_bytes"]
        for policy in _present(fills):
            points = [_fill_point(r) for r in fills if r["policy"] == policy]
            (line,) = plot.axes.plot([p.x for p in points], [p.y for p in points], **_line(policy))
            plot.add(policy, line, points, policy=policy)
        for level, name in zip(watermarks, ("low", "high"), strict=True):
            plot.axes.axhline(100 * level, color="black", linewidth=0.8, linestyle=(0, (2, 4)))
            plot.axes.annotate(
                f"{name} watermark", (1.01, 100 * level), xycoords=("axes fraction", "data"), fontsize=8
            )
        plot.axes.set(ylabel=f"fill, % of {format_bytes(capacity)}", ylim=(50, 105))
        dated(plot.axes)
        return plot


def _fill_point(row: Row) -> Point:
    used, size = row["used_bytes"], row["capacity_bytes"]
    said = f"{percent(used / size, 1)} full ({format_bytes(used)}) at {row['at']:%Y-%m-%d %H:%M} UTC"
    return Point(row["at"], 100 * used / size, said)


def hits_and_misses(days: Sequence[Row]) -> Plot:
    """Hits and misses per day at one capacity, lru beside lru+plan. `days`: rows of replay_days."""
    names = sorted({str(r["on_day"]) for r in days})
    policies = [p for p in ("lru", "lru+plan") if p in _present(days)]
    width = 0.8 / max(1, len(policies))
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        for k, policy in enumerate(policies):
            rows = {str(r["on_day"]): r for r in days if r["policy"] == policy}
            at = [i + (k - (len(policies) - 1) / 2) * width for i in range(len(names))]
            hits, misses = ([rows[n][key] if n in rows else 0 for n in names] for key in ("hits", "misses"))
            tops = [a + b for a, b in zip(hits, misses, strict=True)]
            colour, (of_hits, of_misses) = _COLOURS[policy], _HATCHES[policy]
            below = plot.axes.bar(at, hits, width, color=colour, edgecolor="white", hatch=of_hits)
            look: Any = {"color": "white", "edgecolor": colour, "hatch": of_misses}
            above = plot.axes.bar(at, misses, width, bottom=hits, **look)
            for what, bars, y, n_reads in (("hits", below, hits, hits), ("misses", above, tops, misses)):
                said = [f"{count(n)} reads on {name}" for n, name in zip(n_reads, names, strict=True)]
                plot.add(f"{policy}: {what}", bars, map(Point, at, y, said), policy=policy)
        plot.axes.set_xticks(range(len(names)), [n[5:] for n in names], rotation=45)
        plot.axes.set(ylabel="reads per day")
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
        said = format_bytes if unit == "bytes" else lambda amount: f"{count(amount)} {unit}"
        steps: dict[str, tuple[_Amounts, Any]] = {
            "hits": (hits, {"fill": True, "color": LIGHT}),
            "misses": (misses, {"color": "#111111", "linestyle": (0, (1, 1))}),
        }
        means: dict[str, tuple[_Amounts, Any]] = {
            "hits, two-week mean": (hits, {"color": DARK}),
            "misses, two-week mean": (misses, {"color": WARM, "linestyle": (0, (5, 2))}),
        }
        for label, (amounts, look) in steps.items():
            labels_of = [f"{said(n)}, {when}" for n, when in zip(amounts.tolist(), labels, strict=True)]
            plot.add(
                label, axes.stairs(amounts, edges, **look), map(Point, middle, amounts.tolist(), labels_of)
            )
        for label, (amounts, look) in means.items() if step_s == DAY_S else ():
            mean = running_mean(amounts)
            (line,) = axes.plot(middle, mean, linewidth=2, **look)
            labels_of = [f"{said(n)}, {when}" for n, when in zip(mean.tolist(), labels, strict=True)]
            plot.add(label, line, map(Point, middle, mean.tolist(), labels_of))
        axes.yaxis.set_major_formatter(BYTES_AXIS if unit == "bytes" else COUNTS_AXIS)
        axes.set(ylabel=f"{unit} per {'day' if step_s == DAY_S else 'hour'}", ylim=(0, None))
        dated(axes)
        return plot


def calibration(bins: Sequence[Row]) -> Plot:
    """Observed against predicted share per horizon, on held-out days. `bins`: rows of reliability."""
    with mpl.rc_context(STYLE):
        plot = Plot()
        plot.axes.plot([0, 100], [0, 100], color="black", linewidth=0.8, linestyle=(0, (2, 4)))
        plot.axes.annotate("perfect", (97, 92), ha="right", va="top", fontsize=8)
        looks = zip("osD^v<>", itertools.cycle(_OTHER_DASHES), strict=False)
        horizons = sorted({r["horizon_s"] for r in bins})
        for (marker, dash), horizon in zip(looks, horizons, strict=False):
            rows = sorted((r for r in bins if r["horizon_s"] == horizon), key=lambda r: r["bin"])
            points = list(map(_calibration_point, rows))
            look: Any = {"marker": marker, "markersize": 4, "linestyle": dash}
            (line,) = plot.axes.plot([p.x for p in points], [p.y for p in points], **look)
            plot.add(f"within {duration_label(horizon)}", line, points)
        plot.axes.set(xlabel="predicted chance of a read, %", ylabel="files that were read, %")
        plot.axes.set(xlim=(0, 100), ylim=(0, 100))
        return plot


def _calibration_point(row: Row) -> Point:
    said, was = row["predicted"], row["observed"]
    return Point(100 * said, 100 * was, f"predicted {percent(said, 1)}, {percent(was, 1)} were read")


def _present(rows: Sequence[Row]) -> list[str]:
    return sorted({str(r["policy"]) for r in rows}, key=rank)


def styles(policies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The style of each policy; policies without one of their own take the next of a cycle."""
    others = _other_styles()
    known = {p: {**_line(p), "marker": _MARKERS[p]} for p in POLICIES}
    return {policy: known[policy] if policy in known else next(others) for policy in policies}


def _other_styles() -> Iterator[dict[str, Any]]:
    colours, dashes = itertools.cycle(_OTHER_COLOURS), itertools.cycle(_OTHER_DASHES)
    for fill in itertools.cycle(_FILLS):
        for marker in _OTHER_MARKERS:
            look = {"color": next(colours), "linestyle": next(dashes), "marker": marker}
            yield look | {"fillstyle": fill, "markerfacecoloralt": "white"}


def _line(policy: str) -> dict[str, Any]:
    return {"color": _COLOURS[policy], "linestyle": _DASHES[policy]}


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


BYTES_AXIS = FuncFormatter(lambda value, _: format_bytes(value) if value else "0")
COUNTS_AXIS = FuncFormatter(lambda value, _: count(value))


def as_times(time_s: IntArray) -> npt.NDArray[np.datetime64]:
    """Seconds since 1970 as times of an axis."""
    return time_s.astype("datetime64[s]")
