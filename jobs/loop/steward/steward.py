"""The daemon that keeps one cache below its high watermark by evicting in a chosen order."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from features.common.errors import ConfigError
from features.common.memory import give_back
from features.common.times import DAY_S, as_of_label, day_label
from features.common.units import format_bytes
from jobs.ground.caches.steward_days import StewardDay, WaitingDays
from jobs.ground.settings.tree import Settings
from jobs.ground.signals import Stopped, until_signalled
from jobs.ground.store.locks import alone_at, exclusive
from jobs.ground.store.tables import Tables
from jobs.loop.steward.promoted import Promoted
from jobs.loop.steward.running import Catalogue, cache_root, reports_of, running_steward, steward_target
from prefetch.journal.journal import Journal
from prefetch.steward.book import Listing, listed
from prefetch.steward.figures import StewardFigures
from prefetch.steward.keeper import Keeper
from replay.steward import Saved

STEP_S: Final = 1.0
REPORT_EVERY_S: Final = 60.0
GIVES_WITHIN_S: Final = 20.0  # at its end the tables have so long to take its figures; else later
MOST_FILES: Final = 2_000_000  # if it knows more, and holds a quarter at most, it begins anew
KEEP_EVERY_S: Final = 3600.0
_log = logging.getLogger(__name__)


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
    configured = settings.cache(cache)
    if not configured.steward:
        raise ConfigError(
            f"caches.{cache}.steward",
            "is not true: plans would evict beside the steward, and nobody would have judged both together",
        )
    root = cache_root(configured)
    reports_of(configured)
    path, steward = settings.steward.figures(configured.name), f"steward of cache {configured.name!r}"
    with (
        exclusive(path.with_suffix(".lock"), steward),
        alone_at(root, steward),
        until_signalled() as stopping,
        contextlib.closing(Journal(settings.push.journal, must_exist=True)) as journal,
    ):
        last: StewardFigures | None = None
        tables = Tables.of(settings)
        waiting = WaitingDays(tables, configured.name, path.with_suffix(".days"))
        catalogue = Catalogue(tables)
        with contextlib.suppress(OSError):
            if not path.exists():  # the first attempt counts, however often the service tries again
                StewardFigures.before(configured.name, now_s()).write(path)
        with contextlib.suppress(Stopped), stopping.at_once():
            promoted = Promoted(settings, configured, now_s=now_s)
            # While another process looks for an order.
            listing: Listing | None = listed(steward_target(configured), now_s=now_s())
            promoted.first()
        while not stopping():
            served = promoted.serves
            with contextlib.ExitStack() as stack:
                with contextlib.suppress(Stopped), stopping.at_once():
                    began = running_steward(
                        settings,
                        configured,
                        journal,
                        served,
                        listing,
                        datasets=catalogue.read(),
                        force=force,
                        now_s=now_s,
                    )
                    keeper, book = stack.enter_context(began)
                    listing = None
                    give_back()
                if stopping():
                    break
                days = Days(waiting, keeper.figures(), None if served is None else served.version)
                report = _Report(settings, promoted, catalogue, days, log=log, figures=figures)
                report("began", keeper)
                while not (
                    stopping()
                    or promoted.serves is not served
                    or keeper.clock_was_wrong_at_start
                    or len(book) > max(MOST_FILES, 4 * keeper.n_held)
                    or catalogue.has_come()
                ):
                    keeper.step(STEP_S)
                    promoted.refresh()
                    report.when_due(keeper)
                last = report("stopped" if stopping() else "begins anew", keeper, is_last=True)
        waiting.send(within_s=GIVES_WITHIN_S)
        path.unlink(missing_ok=True)
        return last


class _Report:
    """Writes figures to the state folder, and every minute to the log."""

    def __init__(
        self,
        settings: Settings,
        promoted: Promoted,
        catalogue: Catalogue,
        days: Days,
        *,
        log: Callable[[str], None],
        figures: Callable[[StewardFigures], None],
    ) -> None:
        self._settings, self._promoted, self._log, self._figures = settings, promoted, log, figures
        self._catalogue, self._days = catalogue, days
        self._version = None if promoted.serves is None else promoted.serves.version
        self._since_s = promoted.since_s
        self._due = time.monotonic() + REPORT_EVERY_S
        self._alarms: set[str] = set()
        self._target_bytes = 0

    def __call__(self, event: str, keeper: Keeper, *, is_last: bool = False) -> StewardFigures:
        report = dataclasses.replace(
            keeper.figures(),
            version=self._version,
            version_since_s=self._since_s,
            alarms=self._all_alarms(keeper),
        )
        at = as_of_label(int(report.at_s))
        self._log(f"{at} {event}: {_line(report)}")
        for name, text in report.alarms.items():
            self._log(f"{at} ALARM {name}: {text}")
        self._alarms, self._target_bytes = set(report.alarms), report.target_bytes
        try:
            report.write(self._settings.steward.figures(report.cache))
            self._figures(report)
        except OSError as error:
            self._log(f"{at} ALARM: no figures of this minute: {error}")
        self._days.note(report, keeper.saved(), is_last=is_last)
        return report

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
        if faults := [fault for fault in (self._catalogue.fault, self._days.waiting.fault) if fault]:
            alarms["steward-tables"] = "; ".join(faults)
        return alarms


def _line(figures: StewardFigures) -> str:
    evicted = (
        f"{figures.evicted_files} files evicted, {format_bytes(figures.evicted_bytes_hour)} in the last hour"
    )
    used = f"{format_bytes(figures.used_bytes)} of at most {format_bytes(figures.target_bytes)}"
    order = (
        figures.following if figures.version is None else f"{figures.following} ({figures.version} serves)"
    )
    return (
        f"{figures.held_files} files, {figures.open_files} open, {used}, order {order}, {evicted}, "
        f"{figures.kept} kept, {figures.lost} reports lost, {figures.rescans} rescans"
    )


@dataclasses.dataclass
class _Day:
    """Sums of one day; `orders`: those followed, in the order of their first minute."""

    watched_s: float = 0.0
    evicted_files: int = 0
    evicted_bytes: int = 0
    orders: dict[str, None] = dataclasses.field(default_factory=dict)


class Days:
    """Sums up the figures of one run, for the tables each hour and at the end of a day and a run.

    `model_version`: of the learned order, None without one.
    """

    def __init__(self, waiting: WaitingDays, began: StewardFigures, model_version: str | None) -> None:
        self.waiting, self._began, self._last = waiting, began, began
        self._model_version = model_version
        self._days: dict[int, _Day] = {}
        self._kept_s = began.at_s

    def note(self, figures: StewardFigures, saved: Mapping[int, Saved], *, is_last: bool = False) -> None:
        number = int(figures.at_s // DAY_S)
        ended = number != int(self._last.at_s // DAY_S)
        day = self._days.setdefault(int(self._last.at_s // DAY_S), _Day())
        if self._last.acts:
            day.watched_s += max(0.0, figures.at_s - self._last.at_s)
        day.evicted_files += figures.evicted_files - self._last.evicted_files
        day.evicted_bytes += figures.evicted_bytes - self._last.evicted_bytes
        day.orders[figures.following] = None
        self._last = figures
        if ended or is_last or figures.at_s - self._kept_s >= KEEP_EVERY_S:
            self._kept_s = figures.at_s
            self.waiting.add({day_label(of * DAY_S): self._row(of, saved) for of in self._days})
            self._days = {of: sums for of, sums in self._days.items() if of == number}
        self.waiting.send()

    def _row(self, number: int, saved: Mapping[int, Saved]) -> StewardDay:
        day, of_reads = self._days[number], saved.get(number, Saved(0, 0))
        return StewardDay(
            started_at=dt.datetime.fromtimestamp(int(self._began.started_s), dt.UTC),
            watched_s=round(day.watched_s),
            orders=", ".join(day.orders),
            model_version=self._model_version,
            wan_bytes=of_reads.our_bytes,
            lru_wan_bytes=of_reads.lru_bytes,
            evicted_files=day.evicted_files,
            evicted_bytes=day.evicted_bytes,
        )
