"""Carry out one cache's plan: from the plans table through the journal to the receipts table."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

from features.errors import StaleInputError
from features.schema import PLANS, RECEIPTS
from features.times import as_of_label, day_label
from jobs.console import Advance
from jobs.settings import CacheSettings
from jobs.tables import Tables
from prefetch.attempt import PushLimits
from prefetch.journal import Item, Journal, Receipt
from prefetch.push import PushSummary, push
from prefetch.target import CacheTarget


@dataclasses.dataclass(frozen=True)
class DryRun:
    """What a push would do: items per action, bytes it would fetch; nothing was touched."""

    cache: str
    as_of: str
    items: dict[str, int]
    prefetch_bytes: int


def dry_run(tables: Tables, *, cache: CacheSettings, as_of_s: int) -> DryRun:
    """Count the plan's items; neither the cache nor the journal is touched."""
    rows = _plan(tables, cache.name, as_of_s)
    actions = collections.Counter(row["action"] for row in rows)
    return DryRun(cache.name, as_of_label(as_of_s), dict(actions), sum(row["cost_bytes"] for row in rows))


def run(
    tables: Tables,
    *,
    cache: CacheSettings,
    target: CacheTarget,
    journal: Journal,
    as_of_s: int,
    limits: PushLimits,
    now_s: Callable[[], float],
    on_progress: Advance,
) -> PushSummary:
    """Push the plan of `cache` at `as_of_s`, write its receipts; a second run resumes and repeats nothing."""
    plan = _plan(tables, cache.name, as_of_s)
    journal.record_plan((_item(row, cache.name, as_of_s) for row in plan), now_s=now_s())
    done = 0

    def count(item: Item, receipt: Receipt) -> None:
        nonlocal done
        done += receipt.state in ("done", "failed")
        on_progress(done, len(plan), f"{item.action} {item.name}")

    summary = push(target, journal, cache=cache.name, now_s=now_s, limits=limits, on_progress=count)
    rows = [row for row in journal.receipts(as_of_s) if row["cache"] == cache.name]
    tables.replace_rows(RECEIPTS, rows, (day_label(as_of_s), as_of_label(as_of_s), cache.name))
    return summary


def _plan(tables: Tables, cache: str, as_of_s: int) -> list[dict[str, Any]]:
    key = (day_label(as_of_s), as_of_label(as_of_s), cache)
    if not tables.exists(PLANS) or key not in tables.snapshot(PLANS).partitions:
        raise StaleInputError(f"no plan for cache {cache!r} at {key[1]}; run plan first")
    rows: list[dict[str, Any]] = tables.read_arrow(PLANS, as_of=key[1], owner=cache).to_pylist()
    return rows


def _item(row: dict[str, Any], cache: str, as_of_s: int) -> Item:
    same = ("item_id", "did", "name", "action", "rank", "size_bytes", "cost_bytes")
    return Item(
        cache=cache,
        as_of_s=as_of_s,
        expires_at_s=int(row["expires_at"].timestamp()),
        **{field: row[field] for field in same},
    )
