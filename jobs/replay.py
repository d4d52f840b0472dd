"""Replay of the accesses table: LRU, the clairvoyant, LRU + plan and the bound."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from features.errors import StaleInputError
from features.results import REPLAY_DAYS, REPLAY_FILLS, REPLAYS
from features.schema import ACCESSES, FILES, PREDICTIONS
from features.times import DAY_S, as_of_label, day_label
from jobs.console import Advance
from jobs.planner import planner
from jobs.settings import PlanSettings
from jobs.tables import Key, Tables
from replay.arrow import from_arrow
from replay.compare import Row, compare
from replay.trace import Trace

_READ = ["accessed_at", "did", "size_bytes", "n_reads", "event_id", "known_at"]


def run(
    tables: Tables,
    *,
    first_day_s: int,
    last_day_s: int,
    history_s: int,
    capacities: Sequence[int],
    fractions: Sequence[float],
    watermarks: tuple[float, float],
    purge_interval_s: int,
    region: str,
    plan: PlanSettings | None,
    cycle_s: int,
    on_progress: Advance,
) -> list[dict[str, object]]:
    """Replay the days from `first_day_s` to `last_day_s` (first seconds of days, both count) into the tables.

    The `history_s` before them warm the caches. Capacities are `capacities`, or else `fractions` of the bytes
    of all files read in those days and the history. `plan`: None replays no plan; else predictions must be
    there for every cycle of the counted days. Returns the rows of the replays table.
    """
    trace = _trace(tables, since_s=first_day_s - history_s, until_s=last_day_s)
    sizes = list(capacities) or [int(share * trace.footprint_bytes) for share in fractions]
    if plan is not None:
        _require_predictions(tables, region, first_day_s, last_day_s + DAY_S, cycle_s)
    shared = None if plan is None else planner(tables, trace.names, region=region, plan=plan, cycle_s=cycle_s)
    total, done = len(sizes) * (3 if plan is None else 4), 0

    def on_done(policy: str, capacity: int) -> None:
        nonlocal done
        done += 1
        on_progress(done, total, policy)

    rows = compare(
        trace,
        sizes,
        watermarks=watermarks,
        purge_interval_s=purge_interval_s,
        planner_factory=lambda _: shared,
        cycle_s=cycle_s,
        plan_from_s=first_day_s,
        count_from_s=first_day_s,
        on_done=on_done,
    )
    return _write(tables, rows, trace.footprint_bytes, (day_label(last_day_s), region))


def _trace(tables: Tables, *, since_s: int, until_s: int) -> Trace:
    accesses = tables.read_arrow(ACCESSES, since=day_label(since_s), until=day_label(until_s), columns=_READ)
    if not accesses.num_rows:
        raise StaleInputError(
            f"no access between {day_label(since_s)} and {day_label(until_s)}; pull them first"
        )
    files = tables.read_arrow(FILES, columns=["did", "size_bytes"]) if tables.exists(FILES) else None
    return from_arrow(accesses, files=files).trace


def _require_predictions(tables: Tables, region: str, since_s: int, until_s: int, cycle_s: int) -> None:
    there = {as_of for _, as_of, _ in tables.snapshot(PREDICTIONS).select(owner=region)}
    missing = [label for at in range(since_s, until_s, cycle_s) if (label := as_of_label(at)) not in there]
    if missing:
        raise StaleInputError(
            f"no predictions for {len(missing)} of the replayed plan boundaries, the first at {missing[0]}; "
            "run features and predict for those days, or replay without a plan"
        )


def _write(tables: Tables, rows: Sequence[Row], footprint_bytes: int, key: Key) -> list[dict[str, object]]:
    replays = [_summary(row, footprint_bytes) for row in rows]
    tables.replace_rows(REPLAYS, replays, key)
    tables.replace_rows(REPLAY_DAYS, [line for row in rows for line in _days(row)], key)
    tables.replace_rows(REPLAY_FILLS, [line for row in rows for line in _fills(row)], key)
    return replays


def _summary(row: Row, footprint_bytes: int) -> dict[str, object]:
    result, is_bound = row.result, row.policy == "bound"
    return {
        "policy": row.policy,
        "capacity_bytes": row.capacity_bytes,
        "capacity_fraction": row.capacity_bytes / footprint_bytes,
        "requests": result.requests,
        "hits": None if is_bound else result.hits,
        "hit_ratio": None if is_bound else result.hit_ratio,
        "byte_hit_ratio": result.byte_hit_ratio,
        "bytes_requested": result.bytes_requested,
        "wan_bytes": result.wan_bytes,
        "prefetch_bytes": result.prefetch_bytes,
        "wasted_bytes": result.wasted_bytes,
        "refetch_bytes": result.refetch_bytes,
        "peak_usage_bytes": result.peak_usage_bytes,
        "byte_gap_closed": row.byte_gap_closed,
        "seconds": result.seconds,
    }


def _days(row: Row) -> list[dict[str, object]]:
    daily = row.result.daily
    columns = (daily.day, daily.hits, daily.misses, daily.hit_bytes, daily.wan_bytes)
    return [
        {
            "policy": row.policy,
            "capacity_bytes": row.capacity_bytes,
            "on_day": day_label(day * DAY_S),
            "hits": hits,
            "misses": misses,
            "hit_bytes": hit_bytes,
            "wan_bytes": wan_bytes,
        }
        for day, hits, misses, hit_bytes, wan_bytes in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


def _fills(row: Row) -> list[dict[str, object]]:
    fill = row.result.fill
    return [
        {
            "policy": row.policy,
            "capacity_bytes": row.capacity_bytes,
            "at": dt.datetime.fromtimestamp(at, dt.UTC),
            "used_bytes": used,
        }
        for at, used in zip(fill.time_s.tolist(), fill.used_bytes.tolist(), strict=True)
    ]
