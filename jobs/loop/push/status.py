"""Questions about a cache's pushes, answered from the tables and the journal; the cache is not asked."""

from __future__ import annotations

import collections
import dataclasses
import time
from contextlib import closing

import pyarrow.compute as pc

from features.common.times import as_of_label
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.plan.listing import PlannedFile, Wanted, planned, planned_files
from jobs.loop.push.planned_items import planned_items
from jobs.loop.push.push import push_limits, unproven_plan
from prefetch.actions import Action
from prefetch.journal.journal import Journal
from prefetch.journal.tables import UNPROVEN
from prefetch.push.push import sources_seen


@dataclasses.dataclass(frozen=True)
class DryRun:
    """What a push would do: items per action, the bytes it would fetch, and the files that were asked for.

    `unproven`: why it would leave out what the models chose (it needs --unproven); None: it would not.
    `evicted_by`: the cache's steward, which evicts what is listed when it needs the room; None: the push.
    """

    cache: str
    as_of: str
    items: dict[str, int]
    prefetch_bytes: int
    unproven: str | None
    evicted_by: str | None
    files: tuple[PlannedFile, ...]


@dataclasses.dataclass(frozen=True)
class PushStatus:
    """The progress of a cache's pushes; `as_of` None: of every plan in the journal.

    `items`: per state; `oldest`: the oldest plan that is not pruned; `faults`: items whose last attempt
    failed, by whose fault it was; `pusher`: the process that pushes now, and until when its lease lasts;
    `sources`: recent attempts per origin.
    """

    cache: str
    as_of: str | None
    items: dict[str, int]
    oldest: str | None
    pins: int
    faults: dict[str, int]
    last_errors: tuple[str, ...]
    pusher: str | None
    sources: tuple[str, ...]


def dry_run(settings: Settings, *, cache: str, as_of_s: int, wanted: Wanted) -> DryRun:
    """The items of a plan; neither the cache nor the journal is touched. Raises StaleInputError."""
    tables, chosen = Tables(settings.tables.root), settings.cache(cache)
    name = chosen.name
    plan = planned_items(tables, name, as_of_s, UNPROVEN)
    actions = dict(collections.Counter(plan.rows["action"].to_pylist()))
    fetched = pc.sum(plan.rows["cost_bytes"], min_count=0).as_py()
    why = unproven_plan(tables, plan, settings.region.name)
    files = planned_files(tables, name, as_of_s, wanted)
    by = "its steward" if chosen.steward and actions.get(Action.EVICT) else None
    return DryRun(name, as_of_label(as_of_s), actions, fetched, why, by, files)


def is_over(settings: Settings, *, cache: str, as_of_s: int) -> bool:
    """Whether the time of all items of a plan has passed, so that none is pushed any more."""
    rows = planned(Tables(settings.tables.root), settings.cache(cache).name, as_of_s, ["expires_at"])
    last = pc.max(rows["expires_at"]).as_py()
    return last is not None and last.timestamp() <= time.time()


def status(settings: Settings, *, cache: str, as_of_s: int | None) -> PushStatus:
    """The progress of a cache's pushes, of one plan or of all. Raises ConfigError for an unknown cache."""
    chosen, now_s = settings.cache(cache), time.time()
    with closing(Journal(settings.push.journal)) as journal:
        sources = sources_seen(journal, chosen.name, push_limits(settings, chosen), now_s).states(now_s)
        oldest_s = journal.reports.oldest_s(chosen.name)
        return PushStatus(
            cache=chosen.name,
            as_of=None if as_of_s is None else as_of_label(as_of_s),
            items={state: n for state, n in journal.reports.counts(chosen.name, as_of_s).items() if n},
            oldest=None if oldest_s is None else as_of_label(oldest_s),
            pins=len(journal.reports.pins(chosen.name, now_s=now_s)),
            faults=journal.reports.faults(chosen.name, as_of_s),
            last_errors=tuple(journal.reports.last_errors(chosen.name, as_of_s)),
            pusher=journal.leases.holder(chosen.name, now_s=now_s),
            sources=tuple(f"{state}{', left alone' if state.left_alone else ''}" for state in sources),
        )
