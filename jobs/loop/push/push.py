"""Carry out one cache's plan: from the plans table through the journal to the receipts table."""

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator, Set
from contextlib import closing, contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import NotDueError
from features.common.progress import Advance
from features.common.times import DAY_S, as_of_label, parse_as_of
from features.schema import RECEIPTS
from jobs.ground.caches.inventory import (
    check_listed_evictions,
    check_planned_evictions,
    redirector_of,
    target,
)
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.plan.items import (
    FileFilter,
    PlannedFile,
    PlannedItems,
    planned,
    planned_files,
    planned_items,
    unproven_plan,
)
from jobs.loop.push.journal import check_known, prune, write_receipts
from prefetch.actions import Action, ItemState
from prefetch.journal.journal import Item, Journal, Receipt
from prefetch.journal.tables import PROMOTED, Heading
from prefetch.push.attempt import PushLimits
from prefetch.push.push import PushSummary, push, sources_seen
from prefetch.push.worker import UNMEASURED_S
from prefetch.target import CacheTarget


@dataclasses.dataclass(frozen=True)
class Cancelled:
    """Numbers of items cancelled, of items under way, and of pins given up.

    An item under way ends by itself, and is not tried again if it fails.
    """

    cache: str
    as_of: str | None
    cancelled: int
    under_way: int
    unpinned: int


@dataclasses.dataclass(frozen=True)
class PushRun:
    """A push's tables, journal, target, limits and clock; `keep_s`: how long its journal keeps plans.

    `region`: whose champion's plans may act; `evict_share`: most that it may evict for a steward; None: any.
    """

    tables: Tables
    journal: Journal
    cache: str
    target: CacheTarget
    limits: PushLimits
    now_s: Callable[[], float]
    keep_s: float = 7 * DAY_S
    region: str = "default"
    evict_share: float | None = None


def run(
    settings: Settings,
    *,
    cache: str,
    as_of_s: int,
    on_progress: Advance,
    force: bool = False,
    unproven: bool = False,
    evict_now: bool = False,
    overtaken_by: Callable[[], str | None] = lambda: None,
) -> PushSummary:
    """Carry out one cache's plan; `force`: however much it evicts; the others: see `push_plan`.

    Evictions are left to the cache's steward, if it has one, unless `evict_now`. Raises StaleInputError if
    there is no plan, LimitError, and NotDueError.
    """
    tables, name = Tables.of(settings), settings.cache(cache).name
    plan = planned_items(tables, name, as_of_s)
    if not force:
        share = settings.plan.evict_share
        check_planned_evictions(tables, plan.rows, cache=name, at_s=as_of_s, share=share)
    with _work(settings, cache, evict_now=evict_now, force=force) as work:
        return push_plan(work, plan, on_progress=on_progress, unproven=unproven, overtaken_by=overtaken_by)


def resume(
    settings: Settings,
    *,
    cache: str,
    on_progress: Advance,
    force: bool = False,
    evict_now: bool = False,
    failed: bool = False,
) -> PushSummary:
    """Continue every plan that the journal has for a cache; `evict_now`: see `run`; `failed`: try that again.

    Raises LimitError if that evicts more than its share of the cache at once, unless `force`.
    """
    with _work(settings, cache, evict_now=evict_now, force=force) as work:
        if failed:
            work.journal.plans.retry(work.cache, now_s=work.now_s())
        return push_rest(work, on_progress=on_progress)


def cancel(settings: Settings, *, cache: str, as_of_s: int | None, unpin: bool = False) -> Cancelled:
    """Cancel the unfinished items of all plans for a cache, or of one plan; `unpin`: give up its pins too."""
    name, began_s = settings.cache(cache).name, time.time()
    with _changing_plans(settings, name, began_s) as journal:
        n_cancelled, n_under_way = journal.plans.cancel(name, as_of_s, now_s=began_s)
        n_unpinned = journal.plans.unpin(name, as_of_s, now_s=began_s) if unpin else 0
    label = None if as_of_s is None else as_of_label(as_of_s)
    return Cancelled(name, label, n_cancelled, n_under_way, n_unpinned)


def overtake(settings: Settings, *, cache: str, as_of_s: int, by: str) -> None:
    """Let nothing be carried out of a plan that the features of `by` have overtaken, if it was recorded."""
    name, began_s = settings.cache(cache).name, time.time()
    with _changing_plans(settings, name, began_s) as journal:
        journal.plans.overtake(name, as_of_s, by_s=parse_as_of(by), now_s=began_s)


@contextmanager
def _changing_plans(settings: Settings, cache: str, began_s: float) -> Iterator[Journal]:
    """The journal; the receipts of plans that change in the block are written at its end."""
    with closing(Journal(settings.push.journal)) as journal:
        yield journal
        for at in journal.reports.changed_plans(cache, since_s=began_s):
            write_receipts(Tables.of(settings), journal, cache, at)


def push_limits(settings: Settings, cache: CacheSettings) -> PushLimits:
    touch_every_s = None if cache.touch_every == "auto" else cache.touch_every
    if touch_every_s is None and cache.kind == "xcache" and cache.namespace is None:
        # Without an inventory the cache's LRU age is unknown.
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
        evicts=not cache.steward,
        sources=settings.plan.source_limits,
    )


@contextmanager
def _work(settings: Settings, cache: str, *, evict_now: bool, force: bool) -> Iterator[PushRun]:
    configured = settings.cache(cache)
    with closing(Journal(settings.push.journal)) as journal:
        limits, tables = push_limits(settings, configured), Tables.of(settings)
        check_known(settings, tables, journal, configured.name, now_s=time.time())
        overrides_steward = evict_now and not limits.evicts
        limits = dataclasses.replace(limits, evicts=limits.evicts or evict_now)
        redirector = redirector_of(settings, configured)
        at, region = target(configured, redirector=redirector), settings.region.name
        share = settings.plan.evict_share if overrides_steward and not force else None
        yield PushRun(
            tables, journal, configured.name, at, limits, time.time, settings.push.keep, region, share
        )


def push_plan(
    work: PushRun,
    plan: PlannedItems,
    *,
    on_progress: Advance,
    unproven: bool = False,
    overtaken_by: Callable[[], str | None] = lambda: None,
) -> PushSummary:
    """Push a `plan` of the cache and write its receipts; a second run repeats nothing.

    What no promoted model chose needs `unproven`. Older plans' unfinished items are replaced. `overtaken_by`:
    the later time that alone is to act, asked when nobody else pushes: then raises NotDueError.
    """
    began_s = work.now_s()
    items, withheld, why = admit(work, plan, unproven=unproven)
    empty = None if len(plan) else Heading(work.cache, plan.as_of_s, plan.kind)
    work.journal.plans.record_plan(items, now_s=began_s, empty=empty)
    receipts_of = {plan.as_of_s} if len(items) else set()

    def check() -> None:
        if (by := overtaken_by()) is not None:
            work.journal.plans.overtake(work.cache, plan.as_of_s, by_s=parse_as_of(by), now_s=work.now_s())
            for as_of_s in receipts_of:
                write_receipts(work.tables, work.journal, work.cache, as_of_s)
            raise NotDueError(
                f"the plan of {as_of_label(plan.as_of_s)} was overtaken by the features of {by}"
            )

    done = push_rest(work, on_progress=on_progress, receipts_of=receipts_of, since_s=began_s, check=check)
    return dataclasses.replace(done, withheld=withheld, unproven=why)


def admit(
    work: PushRun, plan: PlannedItems, *, unproven: bool
) -> tuple[PlannedItems, dict[str, int], str | None]:
    """What may enter the journal of a cache's `plan`; how many other items per action, and why they may not.

    All if no model chose, or a promoted one by its digest, the journal has it, or `unproven`. Else what needs
    no model, or nothing while another plan of that time stands.
    """
    why = unproven_plan(work.tables, plan, work.region)
    if why is None:
        return dataclasses.replace(plan, basis=PROMOTED), {}, None
    # What was recorded under a promotion stays what it was when there is another champion, or none.
    if (known_as := work.journal.plans.recorded_as(plan)) is not None:
        return dataclasses.replace(plan, basis=known_as), {}, None
    if unproven:
        return plan, {}, None
    if work.journal.reports.stands(work.cache, plan.as_of_s):
        why = f"{why}; another plan of that time stands, so nothing of this one is carried out"
        return plan.none(), plan.of_models(), why
    return plan.known(), plan.of_models(), why


def push_rest(
    work: PushRun,
    *,
    on_progress: Advance,
    receipts_of: Set[int] = frozenset(),
    since_s: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> PushSummary:
    """Push the unfinished items in the journal of a cache, write receipts, and prune the journal.

    Receipts: of plans changed since `since_s` (None: now), at the times `receipts_of`, and those of the last
    day that have none. `check`: of `prefetch.push.push.push`. Raises LimitError if too much was left to the
    steward.
    """
    began_s = work.now_s() if since_s is None else since_s
    if (share := work.evict_share) is not None:
        names = pa.array(work.journal.reports.evictions(work.cache, now_s=began_s), pa.string())
        check_listed_evictions(work.tables, names, "name", cache=work.cache, at_s=int(began_s), share=share)
    n_waiting = work.journal.reports.planned(work.cache, evicts=work.limits.evicts)
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
        check=check,
    )
    changed = work.journal.reports.changed_plans(work.cache, since_s=began_s)
    lately = work.journal.reports.changed_plans(work.cache, since_s=began_s - DAY_S)
    written = work.tables.head(RECEIPTS).partitions  # a push that was killed may have left its own out
    unwritten = {at_s for at_s in lately if MomentKey.at(at_s, work.cache) not in written}
    for as_of_s in sorted({*changed, *receipts_of, *unwritten}):
        write_receipts(work.tables, work.journal, work.cache, as_of_s)
    prune(work.tables, work.journal, work.cache, now_s=work.now_s(), keep_s=work.keep_s)
    return summary


@dataclasses.dataclass(frozen=True)
class DryRun:
    """What a push would do: items per action, the bytes it would fetch, and the files that were asked for.

    `already_done`: items of the plan that earlier pushes carried out, which are not among them.
    `unproven`: why it would leave out what the models chose (it needs --unproven); None: it would not.
    `evicted_by`: the cache's steward, which evicts what is listed when it needs the room; None: the push.
    """

    cache: str
    as_of: str
    items: dict[str, int]
    already_done: int
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


def dry_run(settings: Settings, *, cache: str, as_of_s: int, listed: FileFilter) -> DryRun:
    """The items of a plan; neither the cache nor the journal is touched. Raises StaleInputError."""
    tables, configured = Tables.of(settings), settings.cache(cache)
    name = configured.name
    plan = planned_items(tables, name, as_of_s)
    receipts = tables.head(RECEIPTS).rows(["item_id", "state"], as_of=as_of_label(as_of_s), owner=name)
    done = receipts.filter(pc.equal(receipts["state"], ItemState.DONE))["item_id"].combine_chunks()
    rows = plan.rows.filter(pc.invert(pc.is_in(plan.rows["item_id"], value_set=done)))
    actions = dict(collections.Counter(rows["action"].to_pylist()))
    fetched = pc.sum(rows["cost_bytes"], min_count=0).as_py()
    why = unproven_plan(tables, plan, settings.region.name)
    files = planned_files(tables, name, as_of_s, listed, but=done)
    by = "its steward" if configured.steward and actions.get(Action.EVICT) else None
    n_done = len(plan.rows) - len(rows)
    return DryRun(name, as_of_label(as_of_s), actions, n_done, fetched, why, by, files)


def is_over(settings: Settings, *, cache: str, as_of_s: int) -> bool:
    """Whether the time of all items of a plan has passed, so that none is pushed any more."""
    rows = planned(Tables.of(settings), settings.cache(cache).name, as_of_s, ["expires_at"])
    last = pc.max(rows["expires_at"]).as_py()
    return last is not None and last.timestamp() <= time.time()


def status(settings: Settings, *, cache: str, as_of_s: int | None) -> PushStatus:
    """The progress of a cache's pushes, of one plan or of all. Raises ConfigError for an unknown cache."""
    configured, now_s = settings.cache(cache), time.time()
    with closing(Journal(settings.push.journal)) as journal:
        health = sources_seen(journal, configured.name, push_limits(settings, configured), now_s)
        states = health.states(now_s)
        oldest_s = journal.reports.oldest_s(configured.name)
        return PushStatus(
            cache=configured.name,
            as_of=None if as_of_s is None else as_of_label(as_of_s),
            items={state: n for state, n in journal.reports.counts(configured.name, as_of_s).items() if n},
            oldest=None if oldest_s is None else as_of_label(oldest_s),
            pins=len(journal.reports.pins(configured.name, now_s=now_s)),
            faults=journal.reports.faults(configured.name, as_of_s),
            last_errors=tuple(journal.reports.last_errors(configured.name, as_of_s)),
            pusher=journal.leases.holder(configured.name, now_s=now_s),
            sources=tuple(f"{state}{', left alone' if state.left_alone else ''}" for state in states),
        )
