"""Keeps a live cache below its high watermark by evicting in our order, so that its own purge never runs."""

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, NamedTuple

from features.common.errors import ServiceError, TargetUnavailable
from features.common.units import format_bytes
from prefetch.push.attempt import PushLimits
from prefetch.steward.book import Book, Listing
from prefetch.steward.clock import Clock
from prefetch.steward.evictions import Budget, Evictions, Marks
from prefetch.steward.feed import Readers
from prefetch.steward.figures import Recent, StewardFigures
from prefetch.steward.fill import Implausible
from prefetch.steward.inventory import some_held
from prefetch.steward.lists import ListReader, Lists, QueuedReads
from prefetch.steward.watch import LiveCache, Watch
from replay.steward.steward import Saved

FILES_AT_ONCE: Final = 64
"""Number of files that are chosen for eviction at once."""
SPARED_S: Final = 60.0
"""A file that is open, or could not be evicted, is not tried again for this long."""
ABSENT_IN_A_ROW: Final = 3
"""After so many evictions in a row of files that were gone, only a new inventory allows others."""
PLANNED: Final = "a plan evicts it"
TEST: Final = "only monitoring reads it"
"""The reasons of evictions that go first; the reason of others names the order followed."""
MOST_TESTS: Final = 0.5
"""Test files never fill this share of a cache: patterns that say so also name other files."""
IDLE_S: Final = 20.0
"""An overfull cache without an eviction for so long counts as one whose steward does not act."""
_STOPPING: Final = {"steward-blind", "steward-cache", "steward-clock", "steward-implausible"}
"""Alarms with which nothing is evicted, where a look ends with them."""


class Limits(NamedTuple):
    """Limits of a steward. `force`: all that is above the high watermark at the start may go."""

    marks: Marks
    push: PushLimits
    max_clock_skew_s: float
    force: bool = False


class Keeper(AbstractContextManager["Keeper"]):
    """The steward of one cache; a context manager.

    `listing`: what `cache` held just now, by the numbers of `book`. `lists`: gives the lists of plans at the
    times given, s since 1970. `readers`: see `Readers`.

    It evicts by what the disk and the server's process show; reports say only when to look, and which files
    are worth keeping. `Budget` limits how much may go. All that it knows comes from the cache: killed at any
    time, it loses nothing.
    """

    def __init__(
        self,
        cache: LiveCache,
        book: Book,
        listing: Listing,
        *,
        lists: Callable[[Sequence[float]], Lists],
        limits: Limits,
        readers: Collection[str] = (),
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.alarms: dict[str, str] = {}
        target, feed, usage, opens = cache
        self._target, self._feed, self._usage, self._opens = target, feed, usage, opens
        self._book, self._steward, self._now_s = book, book.steward, now_s
        self._lists, self._are_listed = ListReader(lists, limits.marks.look_s), False
        self._lists_fault: str | None = None
        self._queued = QueuedReads(book)
        self._watch = Watch(cache, book, timeout_s=limits.push.timeout_s, readers=Readers(readers))
        self._clock = Clock(
            target,
            now_s,
            max_skew_s=limits.max_clock_skew_s,
            started_s=listing.at_s,
            booted_s=listing.uptime_s,
        )
        self._watch.begin(listing, now_s())
        self._budget = Budget(usage, limits.marks, force=limits.force)
        last_look = dataclasses.replace(limits.push, is_open=partial(opens.has, within_s=0.0))
        self._evictions = Evictions(target, last_look, now_s)
        self._recent = Recent()
        self._why: dict[int, str] = {}
        self._saved_before = dict(book.steward.saved())
        self._spared: dict[int, float] = {}
        self._n_evicted = self._evicted_bytes = self._n_kept = 0
        self._n_absent = self._tests_bytes = 0
        self._has_victims = True
        self._acted_at = time.monotonic()
        self._started_s = now_s()

    def __exit__(self, *error: object) -> None:
        self._evictions.__exit__()

    @property
    def n_held(self) -> int:
        return self._steward.n_held

    @property
    def target_bytes(self) -> int:
        return self._budget.target_bytes

    @property
    def clock_was_wrong_at_start(self) -> bool:
        """Whether ages were taken by a clock that was wrong: the steward has to begin anew."""
        return self._clock.was_wrong_at_start

    def step(self, within_s: float) -> None:
        """Follow the cache, measure its disk and evict for `within_s` seconds, less while files must go."""
        until, n_before = time.monotonic() + within_s, self._n_evicted
        self._watch.follow(self._now_s())
        self._look(until)
        if self._n_evicted == n_before or self._budget.excess_bytes <= 0:
            time.sleep(max(0.0, until - time.monotonic()))

    def _look(self, until: float) -> None:
        """Measure the disk and evict some of the excess, until `until` at the latest."""
        self.alarms = {}
        try:
            self._refresh_lists()
            self._release_spared()
            self._collect(0.0)  # before the measure: what has gone since the last look is not made up for
            self._measure()
            if self._may_evict():
                self._evict(until)
                self._measure()
        except Implausible as error:
            self.alarms["steward-implausible"] = str(error)
        except TargetUnavailable as error:
            self.alarms["steward-cache"] = str(error)
        is_stopped = not _STOPPING.isdisjoint(self.alarms)
        self._judge()
        now = time.monotonic()
        if "steward-outrun" not in self.alarms:
            self._acted_at = now
        self._steward.is_credited = not is_stopped and now - self._acted_at < IDLE_S

    def _measure(self) -> None:
        growing = [
            (self._book.name(file), self._steward.bytes_on_disk(file) or 0)
            for file in self._watch.follower.growing
        ]
        self._usage.look([*some_held(self._book), *(name for name, _ in growing)])
        left_out = self._target.left_out
        self._budget.measure(self._steward.used_bytes, growing, self._evicted_bytes, left_out)

    def _refresh_lists(self) -> None:
        """Take what plans ask for. Without an answer pins stay as last read, and planned evictions end."""
        files_go = self._budget.excess_bytes > 0
        try:
            lists = self._lists.read([self._now_s(), self._clock.steady_s], files_go=files_go)
        except ServiceError as error:
            lists, self._lists_fault = None, str(error)
            self._evict_first(())
        if lists is not None:
            self._lists_fault = lists.fault
            self._steward.pin(self._book.known(lists.pins))
            self._evict_first(lists.evictions)
            self._queued.expect(lists.expected)
            self._are_listed = True
        if self._lists_fault is not None:  # until the journal has answered
            self.alarms["steward-lists"] = self._lists_fault

    def _evict_first(self, planned: Iterable[str]) -> None:
        tests = {file: n_bytes for file in self._book.tests if (n_bytes := self._steward.bytes_on_disk(file))}
        self._tests_bytes = sum(tests.values())
        self._steward.evict_first([*self._book.known(planned), *tests])

    def _may_evict(self) -> bool:
        """Whether it is known what is held, pinned and open, and figures and the clock are plausible."""
        if (doubt := self._clock.doubt(self._watch.newest_s)) is not None:
            self.alarms["steward-clock"] = f"{doubt}; nothing is evicted"
            self._watch.rescan()
        if doubt is not None or self.clock_was_wrong_at_start:
            return False
        if (silence := self._watch.silence) is not None:
            self.alarms["steward-cache"] = f"{silence}; nothing is evicted"
            return False
        if (blindness := self._watch.blindness) is not None:
            self.alarms["steward-blind"] = f"{blindness}; nothing is evicted"
        if blindness is not None or not self._are_listed or self._watch.is_behind:
            return False
        if (fault := self._budget.fault or self._misnamed) is not None:
            self.alarms["steward-implausible"] = fault
        return self._budget.may_evict and self._misnamed is None

    @property
    def _misnamed(self) -> str | None:
        """Why the patterns of test files cannot be meant; None if they can."""
        if self._tests_bytes <= MOST_TESTS * self._budget.high_bytes:
            return None
        return (
            f"[plan] test_files matches {format_bytes(self._tests_bytes)} of this cache, whose reads do not "
            "count; nothing is evicted: give patterns of names that only monitoring reads, and restart"
        )

    def _evict(self, until: float) -> None:
        """Evict some files in the steward's order, if the cache holds too much; wait for them until then."""
        waiting = deque(self._victims())
        if waiting and not self._watch.spot_check(self._evictions.files):
            return
        while (waiting or self._evictions.files) and time.monotonic() < until:
            while waiting and self._evictions.room > 0 and not self._watch.is_behind:
                self._begin(waiting.popleft())
            if not self._evictions.files:
                return
            self._collect(max(0.0, until - time.monotonic()))

    def _victims(self) -> list[int]:
        under_way = sum(self._steward.bytes_on_disk(file) or 0 for file in self._evictions.files)
        excess = self._budget.excess_bytes - under_way
        if excess <= 0 or not self._evictions.room:
            return []
        mean = self._steward.used_bytes // max(1, self._steward.n_held)
        victims = self._steward.victims(min(excess, FILES_AT_ONCE * mean + 1), self._now_s())
        self._has_victims = bool(victims)
        return victims

    def _begin(self, file: int) -> None:
        # No victim again while it is under way, as if it were open.
        self._steward.opened(file)
        name = self._book.name(file)
        if self._opens.has(name):
            self._spared[file] = time.monotonic() + SPARED_S
        else:
            self._why[file] = self._reason(file)
            self._evictions.begin(file, name)

    def _reason(self, file: int) -> str:
        if file in self._book.tests:
            return TEST
        return PLANNED if self._steward.goes_first(file) else f"next in the order {self._steward.following}"

    def _collect(self, within_s: float) -> None:
        for file, error, was_there in self._evictions.ended(within_s):
            why = self._why.pop(file)
            if error is not None:
                self._n_kept += 1
                if self._watch.is_gone(file):
                    # Removed without an answer, by a cache that stopped; or its namespace is not mounted.
                    self._watch.rescan(is_urgent=True)
                self._spared[file] = time.monotonic() + SPARED_S
                continue
            self._steward.closed(file)
            n_bytes = self._steward.bytes_on_disk(file) or 0
            self._steward.removed(file)
            self._n_absent = 0 if was_there else self._n_absent + 1
            if was_there:
                self._n_evicted += 1
                self._acted_at = time.monotonic()
                self._evicted_bytes += n_bytes
                self._recent.add(self._now_s(), self._book.name(file), n_bytes, why)
        if self._n_absent >= ABSENT_IN_A_ROW:
            # The cache has purged by itself: what else we take for held may be gone too.
            self._n_absent = 0
            self._watch.rescan(is_urgent=True)

    def _release_spared(self) -> None:
        now = time.monotonic()
        for file in [file for file, until in self._spared.items() if until <= now]:
            del self._spared[file]
            self._steward.closed(file)

    def _judge(self) -> None:
        faults = self._watch.faults
        if (impostor := self._feed.fault) is not None:
            self.alarms["steward-impostor"] = impostor
        if (fault := self._evictions.fault or faults.get("inventory")) is not None:
            self.alarms["steward-cache"] = fault
        if self._budget.used_bytes > self._budget.high_bytes:
            self._watch.rescan()
            self.alarms["steward-outrun"] = self._why_too_full()
        elif miscounted := self._budget.miscounted_bytes:
            self.alarms["steward-outrun"] = (
                f"the cache's server counts {format_bytes(miscounted)} more than its disk had, and purges by "
                "that count before the steward evicts; restart the server, which then counts anew"
            )
        if "steward-clock" not in self.alarms and (fault := self._clock.fault()) is not None:
            self.alarms["steward-clock"] = fault

    def _why_too_full(self) -> str:
        used, high = format_bytes(self._budget.used_bytes), format_bytes(self._budget.high_bytes)
        last = self._evictions.last_error
        why = "more came in than was evicted" if last is None else f"the last eviction failed: {last}"
        if not self._has_victims:
            why = "each file is pinned, open, or was refused a minute ago"
        return f"uses {used}, more than its high watermark of {high}: the cache purges by itself; {why}"

    def figures(self) -> StewardFigures:
        now_s = self._now_s()
        last_hour, first = self._recent.last_hour(now_s), self._steward.first_to_go()
        measured = self._budget if self._budget.is_measured else self._steward
        return StewardFigures(
            cache=self._target.name,
            at_s=now_s,
            started_s=self._started_s,
            following=self._steward.following,
            used_bytes=measured.used_bytes,  # before the first measure: by inventory
            target_bytes=self._budget.target_bytes,
            high_bytes=self._budget.high_bytes,
            inflow_bytes=self._budget.inflow_bytes,
            held_files=self._steward.n_held,
            first_files=first.n_files,
            first_bytes=first.n_bytes,
            open_files=len(self._watch.follower.open_files),
            evicted_files=self._n_evicted,
            evicted_bytes=self._evicted_bytes,
            evicted_bytes_hour=sum(evicted.bytes for evicted in last_hour.values()),
            kept=self._n_kept,
            lost=self._watch.n_lost,
            rescans=self._watch.n_rescans,
            saved_bytes=sum(saved.lru_bytes - saved.our_bytes for saved in self.saved().values()),
            acts=self._steward.is_credited,
            alarms=dict(self.alarms),
            last_hour=last_hour,
            newest=self._recent.newest(),
            server=self._feed.server,
        )

    def saved(self) -> Mapping[int, Saved]:
        """Bytes that reads fetched while it acted, and would have fetched with plain LRU, by day."""
        none = Saved(0, 0)
        return {
            day: Saved(
                *(now - before for now, before in zip(of, self._saved_before.get(day, none), strict=True))
            )
            for day, of in self._steward.saved().items()
            if of != self._saved_before.get(day)
        }
