"""Plots as inline SVG, readable in black and white: lines differ by dash and marker, not by colour alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl

from features.units import duration_label, format_bytes
from jobs.report.drawing import STYLE, dated, new_figure, svg
from jobs.text import Row

POLICIES = ("lru", "lru+plan", "clairvoyant", "bound")
"""Policies with a style of their own, in the order of the legend; others come between them."""

LABELS = {"lru": "LRU", "lru+plan": "LRU + plan", "clairvoyant": "clairvoyant", "bound": "bound"}
_COLOURS = {"lru": "#5b6770", "lru+plan": "#0b6e99", "clairvoyant": "#b5651d", "bound": "#111111"}
_DASHES = {"lru": (0, (5, 2)), "lru+plan": "solid", "clairvoyant": (0, (1, 1)), "bound": (0, (5, 1, 1, 1))}
_MARKERS = {"lru": "s", "lru+plan": "o", "clairvoyant": "^", "bound": "D"}

_OTHER_COLOURS = ("#2e7d32", "#8e24aa", "#c62828", "#00838f", "#6d4c41", "#ad1457", "#9e9d24")
_OTHER_DASHES = ("solid", (0, (3, 1)), (0, (7, 1, 1, 1)))
_OTHER_MARKERS = ("v", "P", "X", "<", ">", "*", "h", "p", "d", "8")


def rank(policy: str) -> tuple[int, str]:
    """The sort key of a policy in legends and tables: LRU first, the bound last."""
    if policy in POLICIES:
        at = POLICIES.index(policy)
        return (at if at < 2 else at + 1), policy
    return 2, policy


def hit_ratio_against_capacity(replays: Sequence[Row]) -> str:
    """Byte hit ratio of each policy at each capacity; no policy can exceed the bound's."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        styles = _styles(replays)
        for policy, style in styles.items():
            rows = sorted((r for r in replays if r["policy"] == policy), key=lambda r: r["capacity_bytes"])
            axes.plot(
                [r["capacity_fraction"] * 100 for r in rows],
                [r["byte_hit_ratio"] * 100 for r in rows],
                **style,
            )
        axes.set(xlabel="capacity, % of the bytes read", ylabel="byte hit ratio, %", ylim=(0, None))
        columns = 1 + len(styles) // 7
        axes.legend(frameon=False, ncols=columns, fontsize=10 if columns == 1 else 8)
        return svg(figure)


def gap_closed(rows: Sequence[Row]) -> str:
    """Gap to the bound closed by each policy at each capacity, with its limits. `rows`: of `evaluate`."""
    judged = [r for r in rows if r["byte_gap_closed"] is not None and r["policy"] not in ("lru", "bound")]
    fractions = sorted({r["capacity_fraction"] for r in judged})
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        styles = _styles(judged)
        for k, (policy, style) in enumerate(styles.items()):
            shown = [r for r in judged if r["policy"] == policy]
            aside = 0.6 * ((k + 0.5) / len(styles) - 0.5)
            middle = [100 * r["byte_gap_closed"] for r in shown]
            lower = [m - 100 * r["byte_gap_closed_lower"] for m, r in zip(middle, shown, strict=True)]
            upper = [100 * r["byte_gap_closed_upper"] - m for m, r in zip(middle, shown, strict=True)]
            axes.errorbar(
                [fractions.index(r["capacity_fraction"]) + aside for r in shown],
                middle,
                yerr=[[max(0.0, value) for value in side] for side in (lower, upper)],
                **style | {"linestyle": "none", "capsize": 3},
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(range(len(fractions)), [f"{100 * f:g}" for f in fractions])
        axes.set(xlabel="capacity, % of the bytes read", ylabel="gap to the bound closed, %")
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        return svg(figure)


def lru_against_capacity(points: Sequence[Row]) -> str:
    """LRU's hit and byte hit ratio over capacity, and the best byte hit ratio; `points`: of a curve."""
    lines = (
        ("hit_ratio", "LRU, requests", "#0b6e99", "solid", "o"),
        ("byte_hit_ratio", "LRU, bytes", _COLOURS["lru"], _DASHES["lru"], "s"),
        ("clairvoyant_byte_hit_ratio", "clairvoyant, bytes", _COLOURS["clairvoyant"], "none", "^"),
        ("bound_byte_hit_ratio", "bound, bytes", _COLOURS["bound"], "none", "D"),
    )
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        for key, label, colour, dash, marker in lines:
            rows = [r for r in points if r[key] is not None]
            axes.plot(
                [r["capacity_fraction"] * 100 for r in rows],
                [r[key] * 100 for r in rows],
                color=colour,
                linestyle=dash,
                marker=marker,
                markersize=4,
                label=label,
            )
        axes.set(xlabel="capacity, % of the bytes read", ylabel="hit ratio, %", ylim=(0, None), xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False)
        return svg(figure)


def hit_ratio_by_cache(rows: Sequence[Row]) -> str:
    """Byte hit ratio of each cache of a fleet, and of all together."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
        names = [str(row["cache"]) for row in rows]
        axes.bar(names, [100 * row["byte_hit_ratio"] for row in rows], color="#5b6770", edgecolor="black")
        axes.tick_params(axis="x", labelrotation=90 if len(names) > 6 else 0)
        axes.set(ylabel="byte hit ratio, %", ylim=(0, None))
        return svg(figure)


def fill_with_watermarks(fills: Sequence[Row], *, watermarks: tuple[float, float]) -> str:
    """Fill level of one capacity's caches over time. `fills`: rows of replay_fills."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
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
        dated(axes)
        axes.legend(frameon=False, loc="lower right")
        return svg(figure)


def hits_and_misses(days: Sequence[Row]) -> str:
    """Hits and misses per day at one capacity, LRU beside LRU + plan. `days`: rows of replay_days."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
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
        axes.set(ylabel="reads per day")
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        return svg(figure)


def calibration(bins: Sequence[Row]) -> str:
    """Observed against predicted share per horizon, on held-out days. `bins`: rows of reliability."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure()
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
        return svg(figure)


def _present(rows: Sequence[Row]) -> list[str]:
    return sorted({str(r["policy"]) for r in rows}, key=rank)


def _styles(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The style of each policy; policies without one of their own take the next of a cycle."""
    present = _present(rows)
    others = [policy for policy in present if policy not in POLICIES]
    cycle = zip(others, itertools.cycle(_OTHER_COLOURS), itertools.cycle(_OTHER_DASHES), strict=False)
    styles = {
        policy: {"color": colour, "linestyle": dash, "marker": marker, "label": policy}
        for (policy, colour, dash), marker in zip(cycle, itertools.cycle(_OTHER_MARKERS), strict=False)
    }
    known = {p: {**_line(p), "marker": _MARKERS[p]} for p in present if p in POLICIES}
    return {policy: (known | styles)[policy] for policy in present}


def _line(policy: str) -> dict[str, Any]:
    return {"color": _COLOURS[policy], "linestyle": _DASHES[policy], "label": LABELS[policy]}
