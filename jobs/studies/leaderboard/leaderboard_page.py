"""The leaderboard's page: how often each policy is best, then each trace with its plot and table."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from pathlib import Path

from features.common import files
from features.results import LRU
from jobs.ground.text import Row, bounds, count, percent
from jobs.pages import plots
from jobs.pages.page import Capacities, Figure, Section, page
from models.evaluation.bootstrap import few_days

PAGE = "leaderboard.html"
SHOWN = 7
"""Policies that plots show at first: the best over all traces."""
CEILINGS = ("bound", "clairvoyant", "clairvoyant-bypass", "clairvoyant (libCacheSim)")
"""Rows that know the future; no policy competes with them."""
_NOTE = (
    "Share of the way from LRU's WAN bytes to those of the bound, which no policy can beat, over the counted "
    "days; accesses before them warm the caches, and learned orders learn from them, and anew each week. "
    "In brackets and as whiskers: one-sided 95 % bounds by a block bootstrap over days. Negative: worse than "
    "LRU. The last column of the overview has the most WAN bytes beside LRU's in one comparison. Plots show "
    "the best policies first; switch others on to compare them."
)
_CLAIMS = (
    "What papers report, and ours of the same measure on each trace, from the least to the most over the "
    "capacities. Byte hit ratios, WAN reduction (bytes requested over WAN bytes) and doubled hit ratios are "
    "those of LRU; saved misses those of the best policy that knows no future; relative errors are of "
    "forecasts of the next day or hour. Where a dash stands, the measure does not exist here. No two "
    "workloads are alike, and the last column says what else differs: no row is a contest."
)


def write(rows: Sequence[Row], out: Path, *, claims: Sequence[Row]) -> Path:
    """Write the page of `rows` and `claims` into folder `out`; returns the path of the page."""
    traces = list(dict.fromkeys(str(row["trace"]) for row in rows))
    fractions = sorted({row["capacity_fraction"] for row in rows})
    order = [str(row["policy"]) for row in overview(rows)]
    by_trace = [_section(trace, [row for row in rows if row["trace"] == trace], order) for trace in traces]
    html = page(
        title="Leaderboard of cache policies",
        subtitle=f"Replayed: {', '.join(traces)}; caches of {percent(fractions[0], 1)} to "
        f"{percent(fractions[-1], 1)} of the bytes read; {len(rows)} replays",
        answers=answers(rows),
        sections=[
            Section("All traces, mean over the capacities", _NOTE, rows=overview(rows), only=True),
            *(_at(fraction, rows) for fraction in fractions),
            *by_trace,
            *([Section("Claims of papers", _CLAIMS, rows=claims, folded=True)] if claims else []),
        ],
        capacities=Capacities("capacity_fraction", fractions),
    )
    path = out / PAGE
    files.write(path, html)
    return path


def _at(fraction: float, rows: Sequence[Row]) -> Section:
    """The overview at one capacity, shown while that is picked."""
    at = [row for row in rows if row["capacity_fraction"] == fraction]
    title = f"All traces, caches of {percent(fraction, 1)} of the bytes read"
    return Section(title, _NOTE, rows=overview(at), capacity=fraction, only=True)


def overview(rows: Sequence[Row]) -> list[Row]:
    """A row per policy: the mean gap closed over the capacities of each trace, the best mean first.

    `worst WAN / LRU`: at the trace and capacity where it fetches most beside LRU.
    """
    by_policy: dict[str, dict[str, list[float]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for row in _competing(rows):
        by_policy[str(row["policy"])][str(row["trace"])].append(row["byte_gap_closed"])
    means = {
        policy: {trace: sum(gaps) / len(gaps) for trace, gaps in traces.items()}
        for policy, traces in by_policy.items()
    }
    worst = _worst(rows)
    traces = list(dict.fromkeys(str(row["trace"]) for row in rows))
    overall = {policy: sum(found.values()) / len(found) for policy, found in means.items()}
    return [
        {"policy": policy, "all": percent(overall[policy])}
        | {trace: percent(means[policy][trace]) if trace in means[policy] else "–" for trace in traces}
        | {"worst WAN / LRU": f"{worst[policy]:.3f}" if policy in worst else "–"}
        for policy in sorted(means, key=lambda policy: -overall[policy])
    ]


def _worst(rows: Sequence[Row]) -> dict[str, float]:
    """The most WAN bytes beside LRU's in one comparison, by policy; where LRU was not compared, nothing."""
    worst: dict[str, float] = {}
    for group in _groups(rows):
        wan_bytes = {str(row["policy"]): row["wan_bytes"] for row in group}
        if LRU in wan_bytes:
            least = max(1, wan_bytes[LRU])
            worst |= {one: max(worst.get(one, 0.0), read / least) for one, read in wan_bytes.items()}
    return worst


def answers(rows: Sequence[Row]) -> list[str]:
    """Which policy is best over all, where it closes most of the gap, and which are best elsewhere."""
    competing = _competing(rows)
    if not competing:
        return []
    best = [max(group, key=lambda row: row["byte_gap_closed"]) for group in _groups(competing)]
    wins = collections.Counter(str(row["policy"]) for row in best)
    first = overview(rows)[0]
    peak = max(
        (row for row in competing if row["policy"] == first["policy"]), key=lambda row: row["byte_gap_closed"]
    )
    others = ", ".join(f"{policy} in {n}" for policy, n in wins.most_common(4) if policy != first["policy"])
    return [
        f"Policy {first['policy']} closes most of the gap to the bound: {first['all']} on average, and "
        f"{percent(peak['byte_gap_closed'])} at best, on {peak['trace']} with a cache of "
        f"{percent(peak['capacity_fraction'], 1)} of the bytes read.",
        f"It fetches the fewest bytes in {wins[str(first['policy'])]} of {len(best)} comparisons "
        f"(trace × capacity){f'; {others}' if others else ''}.",
    ]


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[object, object], list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[row["trace"], row["capacity_fraction"]].append(row)
    return list(groups.values())


def _competing(rows: Sequence[Row]) -> list[Row]:
    return [
        row for row in rows if row["byte_gap_closed"] is not None and row["policy"] not in (*CEILINGS, LRU)
    ]


def _section(trace: str, rows: Sequence[Row], order: Sequence[str]) -> Section:
    """One trace; `order`: policies, the best over all traces first."""
    first = rows[0]
    fractions = sorted({row["capacity_fraction"] for row in rows})
    judged = [row for row in _competing(rows) if row["policy"] in order]
    return Section(
        title=trace,
        note=f"{count(first['requests'])} of {count(first['accesses'])} accesses count, "
        f"{first['n_days']} days; {few_days(first['n_days']) or 'bounds by blocks of them'}.",
        figures=[Figure(plots.gap_closed(judged, order=order, n_shown=SHOWN), f"Gap closed on {trace}")]
        if judged
        else [],
        rows=_table(rows),
        columns={_column(fraction): fraction for fraction in fractions},
    )


def _table(rows: Sequence[Row]) -> list[Row]:
    """A row per policy: the gap closed at each capacity, the mean CPU time."""
    fractions = sorted({row["capacity_fraction"] for row in rows})
    order = [row["policy"] for row in overview(rows)]
    names = [*order, *dict.fromkeys(row["policy"] for row in rows if row["policy"] not in order)]
    table: list[Row] = []
    for name in names:
        mine = {row["capacity_fraction"]: row for row in rows if row["policy"] == name}
        cpu = sum(row["cpu_us_per_access"] for row in mine.values()) / len(mine)
        cells = {_column(fraction): _cell(mine.get(fraction)) for fraction in fractions}
        table.append({"policy": name, **cells, "CPU per access": f"{cpu:.2f} µs"})
    return table


def _column(fraction: float) -> str:
    return f"gap closed at {100 * fraction:g} %"


def _cell(row: Row | None) -> str:
    if row is None or row["byte_gap_closed"] is None:
        return "–"
    low, high = row["byte_gap_closed_lower"], row["byte_gap_closed_upper"]
    gap = percent(row["byte_gap_closed"])
    ends = row["policy"] in ("lru", "bound")
    return gap if low is None or ends else f"{gap} ({bounds(low, high)})"
