"""The report's content, read from the tables."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from features.errors import StaleInputError
from features.results import MODEL_METRICS, RELIABILITY, REPLAY_DAYS, REPLAY_FILLS, REPLAYS
from features.schema import OUTCOMES, PLANS, RECEIPTS, Table
from features.units import duration_label, format_bytes
from jobs.report import plots
from jobs.report.page import Figure, Section, page
from jobs.settings.tree import Settings
from jobs.store.tables import Tables, read_partitions
from jobs.text import Row
from prefetch.actions import ACTIONS

PLAN_ROWS = 12
"""Plan items shown per action; the table has them all."""

_REPLAY_COLUMNS = (
    "policy",
    "capacity_bytes",
    "capacity_fraction",
    "hit_ratio",
    "byte_hit_ratio",
    "wan_bytes",
    "prefetch_bytes",
    "wasted_bytes",
    "refetch_bytes",
    "byte_gap_closed",
)


_OUTCOME_COLUMNS = (
    *("did", "action", "confirmed_by", "n_hits", "bytes_saved"),
    *("bytes_spent", "bytes_wasted", "first_hit_delay_s"),
)


@dataclasses.dataclass(frozen=True)
class ReportSummary:
    """The page that was written."""

    report: str
    size_bytes: int


def run(settings: Settings, *, out: Path) -> ReportSummary:
    """Write the site's report; raises as `build`."""
    html = build(Tables(settings.tables.root), watermarks=settings.replay.watermarks)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html)
    return ReportSummary(str(out), len(html.encode()))


def build(tables: Tables, *, watermarks: tuple[float, float], note: str = "") -> str:
    """The HTML report of the newest replay, training, plan and push under `tables`.

    Parts without a table are left out; with none of them, StaleInputError.
    """
    replays = _newest(tables, REPLAYS)
    sections = [
        section
        for section in (
            _replay_section(tables, replays, watermarks),
            _model_section(tables),
            _plan_section(tables),
            _outcome_section(tables),
        )
        if section
    ]
    if not sections:
        raise StaleInputError(
            f"no table to report on under {tables.root}; run replay, train, plan or push first"
        )
    return page(title="cachecast report", subtitle=note, answers=list(answers(replays)), sections=sections)


def answers(replays: Sequence[Row]) -> Iterator[str]:
    """The question everybody asks, in one sentence per capacity."""
    by_capacity: dict[int, dict[str, Row]] = {}
    for row in replays:
        by_capacity.setdefault(row["capacity_bytes"], {})[row["policy"]] = row
    for capacity, rows in sorted(by_capacity.items()):
        if {"lru", "lru+plan"} <= rows.keys():
            saved = rows["lru"]["wan_bytes"] - rows["lru+plan"]["wan_bytes"]
            share = saved / max(1.0, rows["lru"]["wan_bytes"])
            gap = rows["lru+plan"]["byte_gap_closed"]
            closed = "" if gap is None else f", {100 * gap:.0f} % of the way to the bound"
            verb = "saves" if saved >= 0 else "costs"
            yield (
                f"A cache of {format_bytes(capacity)}: the plan {verb} {format_bytes(abs(saved))} of WAN "
                f"traffic against LRU ({100 * abs(share):.1f} %){closed}."
            )


def _newest(tables: Tables, table: Table) -> list[Row]:
    if not tables.exists(table):
        return []
    snapshot = tables.snapshot(table)
    if not snapshot.partitions:
        return []
    newest = max(snapshot.partitions)
    rows = read_partitions(snapshot, {newest: snapshot.partitions[newest]})
    listed: list[Row] = rows.to_pylist()
    return listed


def _replay_section(
    tables: Tables, replays: Sequence[Row], watermarks: tuple[float, float]
) -> Section | None:
    if not replays:
        return None
    ordered = sorted(replays, key=lambda r: (r["capacity_bytes"], plots.rank(str(r["policy"]))))
    capacities = sorted({r["capacity_bytes"] for r in replays})
    middle = capacities[len(capacities) // 2]
    size = format_bytes(middle)
    days = [r for r in _newest(tables, REPLAY_DAYS) if r["capacity_bytes"] == middle]
    fills = [r for r in _newest(tables, REPLAY_FILLS) if r["capacity_bytes"] == middle]
    fills.sort(key=lambda r: str(r["at"]))
    return Section(
        title="Replay of the held-out days",
        note="WAN bytes are demand misses and prefetches; the bound is what no policy can beat. "
        "LRU and the plan run between the watermarks, as XCache does; the others have none.",
        figures=[
            Figure(plots.hit_ratio_against_capacity(ordered), "Byte hit ratio against capacity"),
            Figure(plots.hits_and_misses(days), f"Hits and misses a day, cache of {size}"),
            Figure(plots.fill_with_watermarks(fills, watermarks=watermarks), f"Fill level, cache of {size}"),
        ],
        rows=[{key: row[key] for key in _REPLAY_COLUMNS} for row in ordered],
    )


def _model_section(tables: Tables) -> Section | None:
    metrics = _newest(tables, MODEL_METRICS)
    if not metrics:
        return None
    reliability = _newest(tables, RELIABILITY)
    calibrated = [r for r in metrics if any(b["model"] == r["model"] for b in reliability)]
    model = max(calibrated, key=lambda r: r["auc"] or 0)["model"] if calibrated else ""
    bins = [b for b in reliability if b["model"] == model]
    return Section(
        title="Models, on days they were not trained on",
        note="Recency and decayed frequency are the baselines to beat; they are scores, not probabilities.",
        figures=[Figure(plots.calibration(bins), f"Calibration of {model}")] if bins else [],
        rows=[
            {"model": r["model"], "within": duration_label(r["horizon_s"])}
            | {
                key: r[key]
                for key in ("auc", "average_precision", "log_loss", "brier", "calibration_error", "n_rows")
            }
            for r in sorted(metrics, key=lambda r: (r["horizon_s"], -(r["auc"] or 0)))
        ],
    )


def _plan_section(tables: Tables) -> Section | None:
    plan = _newest(tables, PLANS)
    if not plan:
        return None
    shown = [r for r in plan if r["rank"] <= PLAN_ROWS]
    shown.sort(key=lambda r: (str(r["action"]), r["rank"]))
    counts = {a: sum(r["action"] == a for r in plan) for a in reversed(ACTIONS)}
    return Section(
        title="The plan",
        note=", ".join(f"{n} to {action}" for action, n in counts.items())
        + f"; the first {PLAN_ROWS} of each:",
        rows=[{key: r[key] for key in ("action", "rank", "name", "size_bytes", "reason")} for r in shown],
    )


def _outcome_section(tables: Tables) -> Section | None:
    receipts = _newest(tables, RECEIPTS)
    if not receipts:
        return None
    outcomes = {r["item_id"]: r for r in _newest(tables, OUTCOMES)}
    states = collections.Counter(r["state"] for r in receipts)
    earned = [{**r, **outcomes[r["item_id"]]} for r in receipts if r["item_id"] in outcomes]
    earned.sort(key=lambda r: (-r["bytes_saved"], str(r["did"])))
    told = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
    return Section(
        title="What was pushed, and what it earned",
        note=f"Receipts: {told}. Every file that was fetched or pinned, best first:",
        rows=[{key: row[key] for key in _OUTCOME_COLUMNS} for row in earned],
    )
