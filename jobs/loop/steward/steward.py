"""The daemon that keeps one cache below its high watermark by evicting in a chosen order."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from features.common.errors import ConfigError
from features.common.times import as_of_label
from features.common.units import format_bytes
from features.schema import FILES
from jobs.ground.caches.inventory import target
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.signals import Stopped, until_signalled
from jobs.ground.store.locks import alone_at, exclusive
from jobs.ground.store.tables import Tables
from jobs.loop.steward.days import Days
from jobs.loop.steward.promoted import Promoted
from jobs.loop.steward.queued import Queued
from prefetch.journal.journal import Journal
from prefetch.push.attempt import PushLimits
from prefetch.steward.book import Book, Datasets, Listing, listed
from prefetch.steward.canary import OpenFiles
from prefetch.steward.evictions import Marks
from prefetch.steward.feed import Feed
from prefetch.steward.figures import StewardFigures
from prefetch.steward.fill import DataDisks
from prefetch.steward.keeper import Keeper, Limits
from prefetch.steward.lists import Lists
from prefetch.steward.watch import LiveCache
from prefetch.target import CacheTarget
from prefetch.xcache.gstream import CaptureReader, FolderReader
from prefetch.xcache.rolling import check_heartbeat
from replay.steward import EvictionOrder, Steward, new_order

if TYPE_CHECKING:
    from models.serving.bundle_files import ServedOrder

STEP_S: Final = 1.0
REPORT_EVERY_S: Final = 60.0
HISTORY_BYTES: Final = 500 * 10**6
"""Captures that are read at the start, the newest ones."""
KNOWN_PER_HELD: Final = 3
"""About so many files are known for each that is held, as those that were read before stay known."""
MANY_FILES: Final = 50_000
"""Of more files processes of their own read the inventory; to start them takes a second."""
MOST_FILES: Final = 2_000_000
"""When more files are known, and a quarter of them at most is held, the steward begins anew with those."""


def run(
    settings: Settings,
    *,
    cache: str,
    log: Callable[[str], None],
    figures: Callable[[StewardFigures], None] = lambda _: None,
    force: bool = False,
    now_s: Callable[[], float] = time.time,
) -> StewardFigures | None:
    """Be the steward of `cache` until SIGTERM or SIGINT; its last figures, None if it had not begun yet.

    `log` gets a line at the start, at the end and every minute, and one for each alarm; `figures` the same
    times. `force`: evict what is above the high watermark at the start, however much that is. When another
    order is promoted, or its clock is set right, it begins anew. Raises ConflictError if the cache has a
    steward already, and ConfigError, InputError, ServiceError or PushError if it cannot begin.
    """
    chosen = settings.cache(cache)
    if not chosen.steward:
        raise ConfigError(
            f"caches.{cache}.steward",
            "is not true: plans would evict beside the steward, and nobody would have judged both together",
        )
    root = _root(chosen)
    _reports(chosen)
    path, us = settings.steward.figures(chosen.name), f"steward of cache {chosen.name!r}"
    with (
        exclusive(path.with_suffix(".lock"), us),
        alone_at(root, us),
        until_signalled() as stopping,
        contextlib.closing(Journal(settings.push.journal, must_exist=True)) as journal,
    ):
        last: StewardFigures | None = None
        with contextlib.suppress(OSError):
            if not path.exists():  # the first attempt counts, however often the service tries again
                StewardFigures.before(chosen.name, now_s()).write(path)
        with contextlib.suppress(Stopped), stopping.at_once():
            promoted = Promoted(settings, chosen, now_s=now_s)
            # While another process looks for an order.
            listing: Listing | None = listed(_target(chosen), now_s=now_s())
            promoted.first()
        while not stopping():
            served = promoted.serves
            with contextlib.ExitStack() as stack:
                with contextlib.suppress(Stopped), stopping.at_once():
                    began = running_steward(
                        settings, chosen, journal, served, listing, force=force, now_s=now_s
                    )
                    keeper, book = stack.enter_context(began)
                    listing = None
                    _give_back()
                if stopping():
                    break
                report = _Report(settings, promoted, keeper.figures(), log, figures)
                report("began", keeper)
                while not (stopping() or promoted.serves is not served or _is_outdated(book, keeper)):
                    keeper.step(STEP_S)
                    promoted.refresh()
                    report.when_due(keeper)
                last = report("stopped" if stopping() else "begins anew", keeper, is_last=True)
        path.unlink(missing_ok=True)
        return last


@contextmanager
def running_steward(
    settings: Settings,
    cache: CacheSettings,
    journal: Journal,
    served: ServedOrder | None,
    listing: Listing | None = None,
    *,
    force: bool = False,
    now_s: Callable[[], float] = time.time,
    paced: Callable[[EvictionOrder], EvictionOrder] = lambda order: order,
) -> Iterator[tuple[Keeper, Book]]:
    """The steward of `cache`, which knows what the cache holds, and the names of its files.

    `listing`: what it held just now; None: that is looked up. `paced`: gives the order that is followed a
    clock of its own.
    """
    low, high = cache.watermarks
    goal, push, root = _target(cache), settings.push, _root(cache)
    if listing is None:
        listing = listed(goal, now_s=now_s())
    learned = None if served is None else [served.order]
    capacity_bytes = int(high * cache.capacity)
    order = new_order(
        settings.steward.policy,
        capacity_bytes,
        learned,
        n_files=KNOWN_PER_HELD * len(listing.names),
    )
    steward = Steward(paced(order), capacity_bytes=int((low + high) / 2 * cache.capacity))
    kinds = () if served is None else served.kinds
    datasets, tests = _datasets(Tables(settings.tables.root)), settings.plan.test_files
    book = Book(steward, datasets, kinds, tests, listing=listing)
    limits = PushLimits(
        parallel=push.parallel,
        timeout_s=push.timeout,
        attempts=1,
        breaker=push.breaker,
        evict_guard_s=0,  # the steward sees which files are open
    )

    queued = Queued(Tables(settings.tables.root), cache)

    def lists(times_s: Sequence[float]) -> Lists:
        pins = [pin.name for at_s in times_s for pin in journal.reports.pins(cache.name, now_s=at_s)]
        evictions = journal.reports.evictions(cache.name, now_s=times_s[0])
        return Lists(set(pins), evictions, queued.due_s(times_s[0]))

    usage = DataDisks(cache.capacity, root, cache.spaces)
    live = LiveCache(goal, _feed(cache, goal), usage, OpenFiles(root))
    with Keeper(
        live,
        book,
        listing,
        lists=lists,
        limits=Limits(Marks(low, high, settings.steward.look), limits, cache.max_clock_skew, force),
        readers=() if served is None else served.readers,
        now_s=now_s,
    ) as keeper:
        del listing
        yield keeper, book


class _Report:
    """Writes figures to the state folder, and every minute to the log."""

    def __init__(
        self,
        settings: Settings,
        promoted: Promoted,
        began: StewardFigures,
        log: Callable[[str], None],
        figures: Callable[[StewardFigures], None],
    ) -> None:
        self._settings, self._promoted, self._log, self._figures = settings, promoted, log, figures
        self._version = None if promoted.serves is None else promoted.serves.version
        self._since_s = promoted.since_s
        self._days = Days(Tables(settings.tables.root), began, self._version)
        self._due = time.monotonic() + REPORT_EVERY_S
        self._alarms: set[str] = set()
        self._target_bytes = 0

    def __call__(self, event: str, keeper: Keeper, *, is_last: bool = False) -> StewardFigures:
        """Report now; the figures."""
        found = dataclasses.replace(
            keeper.figures(),
            version=self._version,
            version_since_s=self._since_s,
            alarms=self._all_alarms(keeper),
        )
        at = as_of_label(int(found.at_s))
        self._log(f"{at} {event}: {_line(found)}")
        for name, text in found.alarms.items():
            self._log(f"{at} ALARM {name}: {text}")
        self._alarms, self._target_bytes = set(found.alarms), found.target_bytes
        try:
            found.write(self._settings.steward.figures(found.cache))
            self._figures(found)
        except OSError as error:
            self._log(f"{at} ALARM: no figures of this minute: {error}")
        self._days.note(found, keeper.saved(), is_last=is_last)
        return found

    def when_due(self, keeper: Keeper) -> None:
        """Report each minute, and at once if there is a new alarm or another target."""
        is_new = keeper.target_bytes != self._target_bytes
        if is_new or time.monotonic() >= self._due or not self._alarms >= self._all_alarms(keeper).keys():
            self._due = time.monotonic() + REPORT_EVERY_S
            self("keeps", keeper)

    def _all_alarms(self, keeper: Keeper) -> dict[str, str]:
        alarms = dict(keeper.alarms)
        if self._promoted.fault is not None:
            alarms["steward-order"] = self._promoted.fault
        return alarms


def _line(found: StewardFigures) -> str:
    evicted = (
        f"{found.evicted_files} files evicted, {format_bytes(found.evicted_bytes_hour)} in the last hour"
    )
    used = f"{format_bytes(found.used_bytes)} of at most {format_bytes(found.target_bytes)}"
    order = found.following if found.version is None else f"{found.following} ({found.version} serves)"
    return (
        f"{found.held_files} files, {found.open_files} open, {used}, order {order}, {evicted}, "
        f"{found.kept} kept, {found.lost} reports lost, {found.rescans} rescans"
    )


def _is_outdated(book: Book, keeper: Keeper) -> bool:
    return keeper.clock_was_wrong_at_start or (len(book) > MOST_FILES and len(book) > 4 * keeper.n_held)


def _give_back() -> None:
    """Give the memory that the start needed back to the system, where the C library can."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def _target(cache: CacheSettings) -> CacheTarget:
    """The target of `cache`, of whose many files processes of their own read the inventory."""
    return target(cache, walks_apart=cache.namespace is not None and _has_many_files(cache.namespace))


def _has_many_files(root: Path) -> bool:
    n_files = accumulate(len(files) for _, _, files in os.walk(root))
    return any(n > 2 * MANY_FILES for n in n_files)  # each has a record


def _datasets(tables: Tables) -> Datasets:
    """The datasets of the catalogue."""
    if not tables.exists(FILES):
        return Datasets()
    rows = tables.read_arrow(FILES, columns=["name", "dataset"])
    return Datasets(
        (batch["name"].to_pylist(), batch["dataset"].to_pylist()) for batch in rows.to_batches(100_000)
    )


def _root(cache: CacheSettings) -> Path:
    if cache.kind == "directory":
        (root := Path(cache.url) / "files").mkdir(parents=True, exist_ok=True)
        return root
    if cache.namespace is None:
        raise ConfigError(
            f"caches.{cache.name}.namespace", "a steward runs on the cache's host and reads its oss.localroot"
        )
    return cache.namespace


def _feed(cache: CacheSettings, goal: CacheTarget) -> Feed:
    """The reports of `cache`, whoever else sends to the same folder."""
    folder = cache.gstream if cache.gstream and cache.gstream.is_dir() else None
    check = (lambda: None) if folder is None else partial(check_heartbeat, folder)
    return Feed(_captures(cache), goal.identity, check=check)


def _captures(cache: CacheSettings) -> CaptureReader | FolderReader:
    path = _reports(cache)
    return FolderReader(path, newest_bytes=HISTORY_BYTES) if path.is_dir() else CaptureReader(path)


def _reports(cache: CacheSettings) -> Path:
    """Where the cache's reports are. Raises ConfigError if that is not said."""
    if cache.gstream is not None:
        return cache.gstream
    if cache.kind != "directory":
        raise ConfigError(
            f"caches.{cache.name}.gstream",
            "a steward follows what the cache reports; set the folder of `cachecast collect`",
        )
    path = Path(cache.url) / "gstream.txt"
    path.touch()
    return path
