"""Carry out one cache's plan: from the plans table through the journal to the receipts table."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from features.errors import ConflictError, StaleInputError
from features.schema import PLANS, RECEIPTS, arrow_schema
from features.times import DAY_S, as_of_label, day_label
from jobs.caches.inventory import check_planned_evictions
from jobs.caches.targets import target
from jobs.plan.file_facts import facts
from jobs.progress import Advance
from jobs.settings.tree import CacheSettings, Settings
from jobs.store.tables import Tables
from prefetch.actions import Action, ItemState
from prefetch.databases import pages
from prefetch.journal.journal import Item, Journal, Receipt
from prefetch.journal.reports import Holder
from prefetch.journal.tables import PLAN, PREFILL
from prefetch.push.attempt import PushLimits
from prefetch.push.push import PushSummary, push, sources_seen
from prefetch.push.touches import UNMEASURED_S
from prefetch.target import CacheTarget

_TRIES_TO_WRITE = 5
_ROWS_AT_ONCE = 5000
_SAME = ("item_id", "did", "name", "action", "rank", "size_bytes", "cost_bytes")


@dataclasses.dataclass(frozen=True)
class DryRun:
    """What a push would do: items per action, bytes it would fetch; nothing was touched."""

    cache: str
    as_of: str
    items: dict[str, int]
    prefetch_bytes: int


@dataclasses.dataclass(frozen=True)
class PushStatus:
    """How far a cache's pushes are; `as_of` None: of every plan in the journal.

    `items`: per state; `oldest`: the oldest plan that is not pruned; `faults`: items whose last try failed,
    by whose fault it was; `runs`: who has items in hand; `sources`: tries of the last while, per origin.
    """

    cache: str
    as_of: str | None
    items: dict[str, int]
    oldest: str | None
    pins: int
    faults: dict[str, int]
    last_errors: tuple[str, ...]
    runs: tuple[str, ...]
    sources: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Cancelled:
    """Items withdrawn, and those under way, which end as they do and are not tried again."""

    cache: str
    as_of: str | None
    cancelled: int
    under_way: int


@dataclasses.dataclass(frozen=True)
class Work:
    """Where a push writes, what it pushes to, by what limits and clock; how long its journal keeps plans."""

    tables: Tables
    journal: Journal
    cache: str
    target: CacheTarget
    limits: PushLimits
    now_s: Callable[[], float]
    keep_s: float = 7 * DAY_S


def run(
    settings: Settings, *, cache: str, as_of_s: int, on_progress: Advance, force: bool = False
) -> PushSummary:
    """Carry out one cache's plan; `force`: however much it evicts. Raises LimitError, and as `push_plan`."""
    if not force:
        tables, name = Tables(settings.tables.root), settings.cache(cache).name
        plan, share = planned(tables, name, as_of_s), settings.plan.evict_share
        check_planned_evictions(tables, plan, cache=name, at_s=as_of_s, share=share)
    with _work(settings, cache) as work:
        return push_plan(work, as_of_s=as_of_s, on_progress=on_progress)


def resume(settings: Settings, *, cache: str, on_progress: Advance) -> PushSummary:
    """Continue every plan that the journal has for a cache."""
    with _work(settings, cache) as work:
        return push_rest(work, on_progress=on_progress)


def dry_run(settings: Settings, *, cache: str, as_of_s: int) -> DryRun:
    """Count what a push would do."""
    return count_items(Tables(settings.tables.root), cache=settings.cache(cache).name, as_of_s=as_of_s)


def status(settings: Settings, *, cache: str, as_of_s: int | None) -> PushStatus:
    """The progress of a cache's pushes, of one plan or of all."""
    chosen = settings.cache(cache)
    with closing(Journal(settings.push.journal)) as journal:
        limits = push_limits(settings, chosen)
        return journal_status(journal, limits, cache=chosen.name, as_of_s=as_of_s, now_s=time.time())


def cancel(settings: Settings, *, cache: str, as_of_s: int | None) -> Cancelled:
    """Cancel the unfinished items of all plans for a cache, or of one plan."""
    name, began_s = settings.cache(cache).name, time.time()
    with closing(Journal(settings.push.journal)) as journal:
        n_cancelled, n_under_way = journal.cancel(name, as_of_s, now_s=began_s)
        for at in journal.changed_plans(name, since_s=began_s):
            write_receipts(Tables(settings.tables.root), journal, name, at)
    label = None if as_of_s is None else as_of_label(as_of_s)
    return Cancelled(name, label, n_cancelled, n_under_way)


def push_limits(settings: Settings, cache: CacheSettings) -> PushLimits:
    """The bounds of pushes to `cache`."""
    touch_every_s = None if cache.touch_every == "auto" else cache.touch_every
    if touch_every_s is None and cache.kind == "xcache" and cache.namespace is None:
        # Without an inventory the cache's LRU age cannot be seen.
        touch_every_s = UNMEASURED_S
    return PushLimits(
        parallel=settings.push.parallel,
        bytes_per_s=settings.push.bytes_per_s,
        timeout_s=settings.push.timeout,
        attempts=settings.push.attempts,
        retry_after_s=settings.push.retry_after,
        touch_every_s=touch_every_s,
        breaker=settings.push.breaker,
        evict_guard_s=cache.evict_guard,
        max_clock_skew_s=cache.max_clock_skew,
        sources=settings.plan.source_limits,
    )


@contextmanager
def _work(settings: Settings, cache: str) -> Iterator[Work]:
    chosen = settings.cache(cache)
    with closing(Journal(settings.push.journal)) as journal:
        limits, tables = push_limits(settings, chosen), Tables(settings.tables.root)
        yield Work(tables, journal, chosen.name, target(chosen), limits, time.time, settings.push.keep)


def count_items(tables: Tables, *, cache: str, as_of_s: int) -> DryRun:
    """Count the plan's items; neither the cache nor the journal is touched."""
    rows = _plan(tables, cache, as_of_s)
    actions = collections.Counter(rows["action"].to_pylist())
    return DryRun(cache, as_of_label(as_of_s), dict(actions), pc.sum(rows["cost_bytes"], min_count=0).as_py())


def push_plan(work: Work, *, as_of_s: int, on_progress: Advance) -> PushSummary:
    """Push the plan of a cache at `as_of_s`, write its receipts; a second run resumes and repeats nothing.

    What older plans left undone is replaced; see `Plans.record_plan`.
    """
    began_s = work.now_s()
    _record(work, as_of_s, began_s)
    return push_rest(work, on_progress=on_progress, receipts_of={as_of_s}, since_s=began_s)


def _record(work: Work, as_of_s: int, now_s: float) -> None:
    plan = _plan(work.tables, work.cache, as_of_s)
    origins = facts(work.tables, plan["did"].combine_chunks())["origin"]
    items = _PlanItems(plan.append_column("origin", origins), work.cache, as_of_s)
    work.journal.record_plan(items, now_s=now_s)


def push_rest(
    work: Work, *, on_progress: Advance, receipts_of: Set[int] = frozenset(), since_s: float | None = None
) -> PushSummary:
    """Go on with what the journal holds for a cache; write the receipts of every plan that it changes.

    `receipts_of`: times of plans whose receipts are written in any case, `since_s`: so are those of plans
    that changed since then. What is settled and old is then pruned from the journal.
    """
    began_s = work.now_s() if since_s is None else since_s
    n_waiting = work.journal.undone(work.cache)[ItemState.PLANNED]
    done = 0

    def count(item: Item, receipt: Receipt) -> None:
        nonlocal done
        done += receipt.state in (ItemState.DONE, ItemState.FAILED)
        on_progress(done, n_waiting, f"{item.action} {item.name}")

    summary = push(
        work.target,
        work.journal,
        cache=work.cache,
        now_s=work.now_s,
        limits=work.limits,
        on_progress=count,
    )
    changed = work.journal.changed_plans(work.cache, since_s=began_s)
    for as_of_s in sorted({*changed, *receipts_of}):
        write_receipts(work.tables, work.journal, work.cache, as_of_s)
    prune(work)
    return summary


def prune(work: Work) -> int:
    """Delete from the journal what has been settled for `keep_s`, its receipts safely in the table; how many.

    A plan that is deleted before its receipts are written would have been carried out for nothing: where the
    table is away, nothing is deleted. Ages are counted up to the newest plan: a clock that is a year ahead
    must not delete the pins of today.
    """
    now_s, n_items = work.now_s(), 0
    newest_s = work.journal.newest_s(work.cache, now_s=now_s)
    if newest_s is None:
        return 0
    now_s = min(now_s, newest_s)
    before_s = now_s - work.keep_s
    for as_of_s in work.journal.prunable(work.cache, before_s=before_s, now_s=now_s):
        if work.journal.pruned_at_s(work.cache, as_of_s) is None and not _is_delivered(work, as_of_s):
            write_receipts(work.tables, work.journal, work.cache, as_of_s)
        n_items += work.journal.forget(work.cache, as_of_s, before_s=before_s, now_s=now_s)
    return n_items


def _is_delivered(work: Work, as_of_s: int) -> bool:
    """Whether the receipts table tells the same of a plan as the journal."""
    label = as_of_label(as_of_s)
    key = (day_label(as_of_s), label, work.cache)
    if not work.tables.exists(RECEIPTS) or key not in work.tables.snapshot(RECEIPTS).partitions:
        return False
    columns = ["item_id", "state", "updated_at"]
    told = work.tables.read_arrow(RECEIPTS, as_of=label, owner=work.cache, columns=columns)
    known = _receipts(work.journal, work.cache, as_of_s).select(columns)
    told, known = (rows.sort_by("item_id") for rows in (told, known))
    return all(told[name].equals(known[name]) for name in columns)


def journal_status(
    journal: Journal, limits: PushLimits, *, cache: str, as_of_s: int | None, now_s: float
) -> PushStatus:
    """What the journal tells of a cache; the cache itself is not asked."""
    runs = (_run_label(holder, now_s) for holder in journal.holders(cache))
    sources = sources_seen(journal, cache, limits, now_s).states(now_s)
    oldest_s = journal.oldest_s(cache)
    return PushStatus(
        cache=cache,
        as_of=None if as_of_s is None else as_of_label(as_of_s),
        items={state: n for state, n in journal.counts(cache, as_of_s).items() if n},
        oldest=None if oldest_s is None else as_of_label(oldest_s),
        pins=len(journal.pins(cache, now_s=now_s)),
        faults=journal.faults(cache, as_of_s),
        last_errors=tuple(journal.last_errors(cache, as_of_s)),
        runs=tuple(runs),
        sources=tuple(f"{state}{', left alone' if state.left_alone else ''}" for state in sources),
    )


def _run_label(holder: Holder, now_s: float) -> str:
    machine, pid, *_ = holder.owner.split("|")
    host = machine.partition("/")[0]
    return f"{host}, process {pid}: {holder.n_items} items, heard of {now_s - holder.heard_at_s:.0f} s ago"


def write_receipts(tables: Tables, journal: Journal, cache: str, as_of_s: int) -> None:
    """Write the receipts of one plan as the journal has them now; those of a pruned plan stay as they are."""
    key = (day_label(as_of_s), as_of_label(as_of_s), cache)
    for n_tries in range(1, _TRIES_TO_WRITE + 1):
        rows = _receipts(journal, cache, as_of_s)
        # Asked for after the rows were read: of a plan that is pruned meanwhile some may be missing.
        if journal.pruned_at_s(cache, as_of_s) is not None:
            return
        for name, value in zip(RECEIPTS.partition, key, strict=True):
            rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
        try:
            tables.replace_arrow(RECEIPTS, rows, cover=[key])
            return
        except ConflictError:
            # Another pusher of the same plan was first: what the journal has now is newer than both.
            if n_tries == _TRIES_TO_WRITE:
                raise


def planned(tables: Tables, cache: str, as_of_s: int, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a plan. Raises StaleInputError if there is none."""
    key = (day_label(as_of_s), as_of_label(as_of_s), cache)
    if not tables.exists(PLANS) or key not in tables.snapshot(PLANS).partitions:
        raise StaleInputError(f"no plan for cache {cache!r} at {key[1]}; run plan first")
    return tables.read_arrow(PLANS, as_of=key[1], owner=cache, columns=columns)


def _plan(tables: Tables, cache: str, as_of_s: int) -> pa.Table:
    return planned(tables, cache, as_of_s, [*_SAME, "expires_at", "model_version"])


def _receipts(journal: Journal, cache: str, as_of_s: int) -> pa.Table:
    """The receipts of one plan as columns: as rows, a million of them would take some GB."""
    schema = arrow_schema(RECEIPTS)
    batches = (
        pa.RecordBatch.from_pylist(rows, schema)
        for rows in pages(journal.receipts(cache, as_of_s), _ROWS_AT_ONCE)
    )
    return pa.Table.from_batches(batches, schema)


@dataclasses.dataclass(frozen=True)
class _PlanItems:
    """The items of a plan, made from its `rows` each time they are gone through."""

    rows: pa.Table
    cache: str
    as_of_s: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[Item]:
        for batch in self.rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in batch.to_pylist():
                yield _item(row, self.cache, self.as_of_s)


def _item(row: dict[str, Any], cache: str, as_of_s: int) -> Item:
    return Item(
        cache=cache,
        as_of_s=as_of_s,
        expires_at_s=int(row["expires_at"].timestamp()),
        source=row["origin"] or "",
        # A prefill follows no predictions, and decides on nothing but its own files.
        kind=PLAN if row["model_version"] else PREFILL,
        **{field: row[field] for field in _SAME} | {"action": Action(row["action"])},
    )
