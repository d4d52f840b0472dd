"""Replay of the site's own accesses: policies, LRU + plan and the bound; results go into the tables."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence

from features.errors import StaleInputError
from features.results import REPLAY_DAYS, REPLAY_FILLS, REPLAYS
from features.schema import PREDICTIONS
from features.times import DAY_S, as_of_label, day_label
from jobs.plan.model_weight import MODEL_COLUMNS, model_of
from jobs.plan.planner import planner
from jobs.progress import Advance
from jobs.settings.plan import PlanSettings
from jobs.settings.tree import Settings
from jobs.simulate.accesses import days_of_tables
from jobs.simulate.replay_trace import (
    Caches,
    ReplayAnswer,
    named_policies,
    own_policies,
    shows_bound,
    summary,
    xcache,
)
from jobs.store.keys import Key
from jobs.store.tables import Tables
from jobs.store.traces import from_tables, sizes
from replay.compare import PLAN, Row, compare


def run(
    settings: Settings,
    caches: Caches,
    *,
    first_day_s: int | None,
    last_day_s: int | None,
    site: str | None = None,
    on_progress: Advance,
) -> ReplayAnswer:
    """Replay days of the site's tables as XCaches with its watermarks. Raises InputError, and as `replay`."""
    first_s, last_s = days_of_tables(first_day_s, last_day_s)
    tables = Tables(settings.tables.root)
    tables.check_writable(REPLAYS)
    return replay(
        tables,
        dataclasses.replace(caches, watermarks=caches.watermarks or settings.replay.watermarks),
        first_day_s=first_s,
        last_day_s=last_s,
        history_s=settings.features.spec.history_s,
        demand_sources=settings.sources.demand,
        site=site,
        region=settings.region.name,
        plan=settings.plan,
        cycle_s=settings.features.cycle,
        on_progress=on_progress,
    )


def replay(
    tables: Tables,
    caches: Caches,
    *,
    first_day_s: int,
    last_day_s: int,
    history_s: int,
    demand_sources: Mapping[str, str],
    site: str | None = None,
    region: str,
    plan: PlanSettings,
    cycle_s: int,
    on_progress: Advance,
) -> ReplayAnswer:
    """Replay the days from `first_day_s` to `last_day_s` and write the results into the tables.

    Both are first seconds of days, and both days count. The `history_s` before them warm the caches.
    Fractions are of the bytes of all files read in the history and those days. `demand_sources`: the source
    whose rows count, by cache or site. The policy lru+plan plans with `plan` as production does, and needs
    predictions for every cycle of the counted days. Returns the rows of the replays table with further
    columns. Raises ConfigError, InputError, StaleInputError.
    """
    policies = named_policies(caches)
    loaded = from_tables(
        tables,
        since_s=first_day_s,
        until_s=last_day_s,
        demand_sources=demand_sources,
        site=site,
        history_s=history_s,
        keep=caches.keep,
    )
    trace, shared = loaded.trace, None
    if PLAN in policies:
        _require_predictions(tables, region, first_day_s, last_day_s + DAY_S, cycle_s)
        version = _version(tables, region, first_day_s)
        shared = planner(tables, trace.names, region=region, plan=plan, cycle_s=cycle_s, version=version)
    chosen = sizes(trace, capacities=caches.capacities, fractions=caches.fractions)
    own = own_policies(caches, loaded, chosen, count_from_s=first_day_s, on_progress=on_progress)
    rows = compare(
        trace,
        chosen,
        policies=policies,
        xcache=xcache(caches),
        planner=shared,
        own=own,
        cycle_s=cycle_s,
        plan_from_s=first_day_s,
        count_from_s=first_day_s,
        with_bound=shows_bound(caches),
        in_parts=caches.block_bytes is not None,
        on_done=on_progress,
        workers=caches.workers,
    )
    written = _write(tables, rows, trace.footprint_bytes, (day_label(last_day_s), region))
    return ReplayAnswer(written, loaded.notes)


def _require_predictions(tables: Tables, region: str, since_s: int, until_s: int, cycle_s: int) -> None:
    predicted = {as_of for _, as_of, _ in tables.head(PREDICTIONS).select(owner=region)}
    boundaries = [as_of_label(at) for at in range(since_s, until_s, cycle_s)]
    missing = [label for label in boundaries if label not in predicted]
    if missing:
        raise StaleInputError(
            f"no predictions for {len(missing)} of the replayed plan boundaries, the first at {missing[0]}; "
            "run `cachecast features` and `cachecast predict` for those days, or leave lru+plan out: "
            "--policy lru,clairvoyant"
        )


def _version(tables: Tables, region: str, as_of_s: int) -> str:
    label = as_of_label(as_of_s)
    return model_of(tables.read_arrow(PREDICTIONS, as_of=label, owner=region, columns=MODEL_COLUMNS)).version


def _write(tables: Tables, rows: Sequence[Row], footprint_bytes: int, key: Key) -> list[dict[str, object]]:
    replays = [summary(row, footprint_bytes) for row in rows]
    tables.replace_rows(REPLAYS, replays, key)
    tables.replace_rows(REPLAY_DAYS, [line for row in rows for line in _days(row)], key)
    tables.replace_rows(REPLAY_FILLS, [line for row in rows for line in _fills(row)], key)
    return replays


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
