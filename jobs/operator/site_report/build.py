"""The site's report: what caches recorded, the newest replay, training, plan and push, as one HTML page."""

import collections
import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path

from features.common import files
from features.common.errors import StaleInputError
from features.common.units import duration_label, format_bytes
from features.results import MODEL_METRICS, RELIABILITY, REPLAY_DAYS, REPLAY_FILLS, REPLAYS
from features.schema import OUTCOMES, PLANS, RECEIPTS, Table
from jobs.ground.settings.tree import Settings
from jobs.ground.store import generated
from jobs.ground.store.tables import Tables
from jobs.ground.text import OUTCOME_NOTE, Row, count, select
from jobs.operator.site_report.recorded import recorded_section
from jobs.pages import plots
from jobs.pages.page import Answer, Capacities, Figure, Section, page
from jobs.pages.verdicts import savings
from prefetch.actions import ACTIONS
from prefetch.outcomes import Use
from replay.comparison import PLAN

PLAN_ROWS = 12  # plan items shown per action; the plans table holds all of them
OUTCOME_ROWS = 200  # pushed files shown; the outcomes table holds all of them
_REPLAY_COLUMNS = (
    *("policy", "capacity_bytes", "capacity_fraction", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    *("prefetch_bytes", "wasted_bytes", "refetch_bytes", "byte_gap_closed"),
)
_MODEL_COLUMNS = ("auc", "average_precision", "log_loss", "brier", "calibration_error", "n_rows")
_PLAN_COLUMNS = ("action", "rank", "name", "size_bytes", "reason")
_EARNED = ("bytes_saved", "bytes_spent", "bytes_wasted")
_OUTCOME_COLUMNS = (
    *("did", "action", "confirmed_by", "use", "n_hits", "bytes_saved"),
    *("bytes_spent", "bytes_wasted", "first_hit_delay_s"),
)


def run(
    settings: Settings,
    *,
    out: Path,
    answers: Sequence[str] = (),
    first: Sequence[Section] = (),
    note: str = "",
) -> dict[str, object]:
    """Write the report of the caches' records, and the newest replay, training, plan and push of the tables.

    `answers`, the sections `first` and `note` come before; parts without a table are left out (all:
    StaleInputError). Returns its path as `report`, and its length as `page_bytes`.
    """
    tables, region = Tables.of(settings), settings.region.name
    replays = _newest_rows(tables, REPLAYS, region)
    fills = sorted(_newest_rows(tables, REPLAY_FILLS, region), key=lambda row: str(row["at"]))
    parts = (
        recorded_section(tables, settings.origin_regions),
        _replay_section(replays, fills, settings.replay.watermarks),
        _model_section(tables, region),
        *_plan_sections(tables),
        *_outcome_sections(tables),
    )
    sections = [*first, *(section for section in parts if section)]
    if not sections:
        raise StaleInputError(
            f"no table to report on under {tables.root}; run replay, train, plan or push first"
        )
    sizes = _capacities(replays)
    saved = [
        Answer(saving, size)
        for size in sizes
        for saving in savings([r for r in replays if r["capacity_bytes"] == size], "capacity_bytes", (PLAN,))
    ]
    days = sorted(row["on_day"] for row in _newest_rows(tables, REPLAY_DAYS, region))
    span = f", {days[0]} to {days[-1]}" if days else ""
    warning = generated.warning(tables)
    html = page(
        title=f"Region {region}{span}{': generated data' if warning else ''}",
        subtitle=" ".join(f"{sentence}." for sentence in (warning, note) if sentence),
        answers=[*answers, *saved],
        sections=sections,
        capacities=Capacities(values=sizes, picked=sizes[len(sizes) // 2] if sizes else None),
    )
    files.write(out, html)
    return {"report": str(out), "page_bytes": len(html.encode())}


def _newest_rows(tables: Tables, table: Table, owner: str | None = None) -> list[Row]:
    rows: list[Row] = tables.newest(table, owner=owner).rows().to_pylist()
    return rows


def _replay_section(
    replays: Sequence[Row], fills: Sequence[Row], watermarks: tuple[float, float]
) -> Section | None:
    if not replays:
        return None
    ordered = sorted(replays, key=lambda r: (r["capacity_bytes"], plots.rank(str(r["policy"]))))
    against = Figure(plots.hit_ratio_against_capacity(ordered), "Byte hit ratio against capacity")
    return Section(
        title="Replay of the held-out days",
        note="WAN bytes are demand misses and prefetches; no policy can do better than the bound. "
        "LRU and the plan run between the watermarks, as XCache does; the other policies have none.",
        figures=[against, *_fill_levels(_capacities(replays), fills, watermarks)],
        rows=[select(row, _REPLAY_COLUMNS) for row in ordered],
    )


def _capacities(replays: Sequence[Row]) -> list[int]:
    return sorted({row["capacity_bytes"] for row in replays})


def _fill_levels(
    capacities: Sequence[int], fills: Sequence[Row], watermarks: tuple[float, float]
) -> Iterator[Figure]:
    for size in capacities:
        levels = dict[str, list[tuple[dt.datetime, int]]]()
        for row in fills:
            if row["capacity_bytes"] == size:
                levels.setdefault(str(row["policy"]), []).append((row["at"], row["used_bytes"]))
        if levels:
            plot = plots.fill_level(levels, capacity_bytes=size, watermarks=watermarks)
            yield Figure(plot, f"Fill level, cache of {format_bytes(size)}", size)


def _model_section(tables: Tables, region: str) -> Section | None:
    metrics = _newest_rows(tables, MODEL_METRICS, region)
    if not metrics:
        return None
    metrics.sort(key=lambda row: (row["horizon_s"], -(row["auc"] or 0)))
    return Section(
        title="Models, on days they were not trained on",
        note="Recency and decayed frequency are the baselines to beat; they are scores, not probabilities.",
        figures=_calibration(metrics, _newest_rows(tables, RELIABILITY, region)),
        rows=[
            {"model": row["model"], "within": duration_label(row["horizon_s"])}
            | {key: row[key] for key in _MODEL_COLUMNS}
            for row in metrics
        ],
    )


def _calibration(metrics: Sequence[Row], reliability: Sequence[Row]) -> list[Figure]:
    reliable = {row["model"] for row in reliability}
    calibrated = [row for row in metrics if row["model"] in reliable]
    if not calibrated:
        return []
    best = max(calibrated, key=lambda row: row["auc"] or 0)["model"]
    bins = [row for row in reliability if row["model"] == best]
    return [Figure(plots.calibration(bins), f"Calibration of {best}")]


def _plan_sections(tables: Tables) -> Iterator[Section]:
    plan = _newest_rows(tables, PLANS)
    if not plan:
        return
    sums = list[Row]()
    for action in ACTIONS:
        if items := [row for row in plan if row["action"] == action]:
            sizes, costs = (sum(row[key] or 0 for row in items) for key in ("size_bytes", "cost_bytes"))
            files_and_bytes = {"files": len(items), "size_bytes": sizes, "fetched_bytes": costs}
            sums.append({"action": action} | files_and_bytes)
    yield Section("The plan", _whose(plan), rows=sums)
    first_items = sorted(
        (row for row in plan if row["rank"] <= PLAN_ROWS), key=lambda r: (r["action"], r["rank"])
    )
    yield Section(
        title="The plan, file by file",
        note=f"The first {PLAN_ROWS} of each action.",
        rows=[select(row, _PLAN_COLUMNS) for row in first_items],
    )


def _outcome_sections(tables: Tables) -> Iterator[Section]:
    newest = tables.newest(OUTCOMES)
    outcomes = {row["item_id"]: row for row in newest.rows().to_pylist()}
    receipts = _newest_rows(tables, RECEIPTS)
    if outcomes:  # they come days after their push, and others have been made since
        receipts = tables.head(RECEIPTS).rows_of(newest.partitions).to_pylist()
    if not receipts:
        return
    states = collections.Counter(str(row["state"]) for row in receipts)
    counts = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
    measured = [{**row, **outcomes[row["item_id"]]} for row in receipts if row["item_id"] in outcomes]
    yield Section(
        title="What was pushed, and what it saved",
        note=f"{_whose(receipts)} Receipts: {counts}. {OUTCOME_NOTE}",
        rows=[_earned(action, measured) for action in sorted({str(row["action"]) for row in measured})],
    )
    measured.sort(key=lambda row: (-row["bytes_saved"], str(row["did"])))
    if measured:
        yield Section(
            title="What was pushed, file by file",
            note=f"The best of the {count(len(measured))} files that were fetched or pinned.",
            rows=[select(row, _OUTCOME_COLUMNS) for row in measured[:OUTCOME_ROWS]],
        )


def _whose(rows: Sequence[Row]) -> str:
    """The cache and the decision time of a plan, by its rows."""
    return f"Of cache {rows[0]['cache']} at {rows[0]['as_of']}."


def _earned(action: str, measured: Sequence[Row]) -> Row:
    mine = [row for row in measured if row["action"] == action]
    sums = {key: sum(row[key] or 0 for row in mine) for key in _EARNED}
    uses = collections.Counter(row["use"] for row in mine)
    files = {"files": len(mine)} | {f"{use}_files": uses[use] for use in Use}
    return {"action": action} | files | sums
