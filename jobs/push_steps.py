"""The steps of a push as settings configure them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from features.times import as_of_label
from jobs.cli.console import Advance
from jobs.settings.tree import CacheSettings, Settings
from jobs.store.tables import Tables

if TYPE_CHECKING:
    from jobs.push.push import Cancelled, DryRun, PushStatus, Work
    from prefetch.journal.journal import Journal
    from prefetch.push.attempt import PushLimits
    from prefetch.push.push import PushSummary


def push(settings: Settings, *, cache: str, as_of_s: int, on_progress: Advance) -> PushSummary:
    """Carry out one cache's plan."""
    from jobs.push.push import run

    with _work(settings, cache) as work:
        return run(work, as_of_s=as_of_s, on_progress=on_progress)


def dry_run(settings: Settings, *, cache: str, as_of_s: int) -> DryRun:
    """Count what a push would do."""
    from jobs.push.push import dry_run as count

    return count(Tables(settings.tables.root), cache=settings.cache(cache).name, as_of_s=as_of_s)


def resume(settings: Settings, *, cache: str, on_progress: Advance) -> PushSummary:
    """Go on with every plan that the journal has for a cache."""
    from jobs.push.push import resume as go_on

    with _work(settings, cache) as work:
        return go_on(work, on_progress=on_progress)


def status(settings: Settings, *, cache: str, as_of_s: int | None) -> PushStatus:
    """How far a cache's pushes are, of one plan or of all."""
    from jobs.push.push import status as tell

    chosen = settings.cache(cache)
    with _journal(settings) as journal:
        limits = push_limits(settings, chosen)
        return tell(journal, limits, cache=chosen.name, as_of_s=as_of_s, now_s=time.time())


def cancel(settings: Settings, *, cache: str, as_of_s: int | None) -> Cancelled:
    """Withdraw what of a cache's plans, or of one, is not done yet."""
    from jobs.push.push import Cancelled, write_receipts

    name, began_s = settings.cache(cache).name, time.time()
    with _journal(settings) as journal:
        n_cancelled, n_under_way = journal.cancel(name, as_of_s, now_s=began_s)
        for at in journal.changed_plans(name, since_s=began_s):
            write_receipts(Tables(settings.tables.root), journal, name, at)
    label = None if as_of_s is None else as_of_label(as_of_s)
    return Cancelled(name, label, n_cancelled, n_under_way)


def push_limits(settings: Settings, cache: CacheSettings) -> PushLimits:
    """The bounds of pushes to `cache`."""
    from prefetch.push.attempt import PushLimits
    from prefetch.push.touches import UNMEASURED_S

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
        sources=settings.plan.source_limits,
    )


@contextmanager
def _work(settings: Settings, cache: str) -> Iterator[Work]:
    from jobs.push.push import Work
    from jobs.push.targets import target

    chosen = settings.cache(cache)
    with _journal(settings) as journal:
        limits, tables = push_limits(settings, chosen), Tables(settings.tables.root)
        yield Work(tables, journal, chosen.name, target(chosen), limits, time.time, settings.push.keep)


@contextmanager
def _journal(settings: Settings) -> Iterator[Journal]:
    from prefetch.journal.journal import Journal

    journal = Journal(settings.push.journal)
    try:
        yield journal
    finally:
        journal.close()
