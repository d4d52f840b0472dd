"""What a steward knows of its cache: its disk, its reports, and whether reports are complete."""

import random
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from features.common.errors import InputError, PushError, PushRejected
from prefetch.steward.book import Book, Listing
from prefetch.steward.canary import Canary, OpenFiles
from prefetch.steward.clock import uptime_s
from prefetch.steward.feed import ASK_EVERY_S, Feed, Lost, Readers, Report, Restarted
from prefetch.steward.fill import DataDisks
from prefetch.steward.follower import Follower, name_in
from prefetch.steward.inventory import Rescan, begin
from prefetch.target import CacheTarget
from prefetch.xcache.events import FileClose
from prefetch.xcache.server import N_ASKED

RESCAN_EVERY_S: Final = 24 * 3600.0
RESTS_PER_RESCAN: Final = 20
"""After a rescan, none begins for this many times its duration, and at least `REST_S`."""
REST_S: Final = 10.0
READS_FOR_S: Final = 2.0
"""Longest time for which reports are taken at once, s."""
BEHIND_S: Final = 30.0
"""If reports come faster than they can be taken for so many seconds, they are too old to evict by."""
N_SPOTS: Final = 32
N_CLOSED: Final = 1000
"""Files closed last, of which the server is asked for some: a few reports that are forged hide no others."""
_DRAWS: Final = 20
_UNREPORTED: Final = frozenset('"\\')
"""What servers write into their reports as it is, so that these are no JSON (seen on 5.5.3 and 6.2.1)."""


class CacheDisk:
    """The disk of a live cache, by the cache's own records: a `follower.Disk`."""

    def __init__(self, target: CacheTarget, opens: OpenFiles, canary: Canary) -> None:
        self._target, self._opens, self._canary = target, opens, canary

    def size_bytes(self, name: str, reported: int) -> int | None:
        """The size in the file's record; -1 if that is unreadable, None if there is none."""
        with suppress(PushError):
            if (held := self._target.confirm(name).held) is not None:
                return held.size_bytes or (-1 if held.unreadable else 0)
        return None

    def bytes_on_disk(self, file: int, name: str) -> int | None:
        """The bytes in the file's record; 0 if there is none, None if it is unreadable."""
        try:
            held = self._target.confirm(name).held
        except PushError:
            return None
        return 0 if held is None else held.bytes_on_disk or (None if held.unreadable else 0)

    def is_open(self, name: str) -> bool | None:
        """Whether a process has it open; None if the server's open files are hidden from this process."""
        return self._opens.has(name) if self._canary.sees_opens else None


class LiveCache(NamedTuple):
    """A live cache, as its steward sees it: by commands, by reports, by its disk and its open files."""

    target: CacheTarget
    feed: Feed
    usage: DataDisks
    opens: OpenFiles


class Watch:
    """Follows one cache, by its reports and by inventories.

    `faults`: why its `reports` or its `inventory` cannot be had now; `n_lost`: datagrams missing so far;
    `newest_s`: the newest use that the last inventory showed, s since 1970; None: it showed none.
    """

    def __init__(self, cache: LiveCache, book: Book, *, timeout_s: float, readers: Readers) -> None:
        target, feed, _, opens = cache
        self.faults: dict[str, str] = {}
        self.n_lost = self.n_rescans = 0
        self.newest_s: float | None = None
        self._opens, self._canary = opens, Canary(target, opens, timeout_s=timeout_s)
        self._disk = CacheDisk(target, opens, self._canary)
        self.follower = Follower(
            book,
            ours_last_s=timeout_s,
            disk=self._disk,
            readers=readers,
            reports_opens=lambda: feed.reports_opens,
        )
        self._target, self._feed, self._book, self._steward = target, feed, book, book.steward
        self._chance = random.SystemRandom()
        self._closed: deque[str] = deque(maxlen=N_CLOSED)
        self._reports: Iterator[Report] = iter(())
        self._taken_at = self._asked_at = time.monotonic()
        self._rescan: Rescan | None = None
        self._is_urgent = False
        self._began = self._free_at = 0.0
        self._due = time.monotonic() + RESCAN_EVERY_S

    @property
    def silence(self) -> str | None:
        """In which words the server does not answer; None if it does."""
        return None if self._canary.is_answered or "reports" in self.faults else self._canary.fault

    @property
    def blindness(self) -> str | None:
        """Why it is not known which files are read and open; None if it is known."""
        if (fault := self.faults.get("reports")) is not None:
            return fault
        if time.monotonic() - self._taken_at > BEHIND_S:
            return f"reports have come faster than they can be read for {BEHIND_S:.0f} s"
        if not self._feed.is_served:
            return None
        if self._canary.fault is not None:
            return self._canary.fault
        hides = self._canary.stream_verified and not self._canary.sees_opens
        if hides and self._target.removes_open_files():
            return (
                "this server removes open files, and which files its process has open cannot be seen: run "
                "the steward on its host, as its user"
            )
        return None

    def begin(self, listing: Listing, now_s: float) -> None:
        """Take what the cache holds, and its earlier reports. Raises InputError and PushError."""
        began = time.monotonic() - (uptime_s() - listing.uptime_s)
        reports = _noted(self._feed.poll(), self._closed)
        begin(listing, self._book, self.follower, reports, now_s=now_s)
        self.newest_s = listing.newest_s
        self._rest(began)
        self._see_if_it_is_empty()
        self._taken_at = time.monotonic()

    def _see_if_it_is_empty(self) -> None:
        """If the inventory shows no byte, ask the server for some of the files reported last.

        If the server holds one that the namespace lacks, the disk is not mounted here: `inventory` raises
        that. If the namespace shows one by now, it was mounted since, and is walked again.
        """
        if self._steward.used_bytes:
            return
        names = list(dict.fromkeys(self._closed))
        for expected in [[name] for name in self._chance.sample(names, min(N_ASKED, len(names)))] or [[]]:
            with suppress(PushRejected):
                if any(held.bytes_on_disk for held in self._target.inventory(expected)):
                    return self.rescan(is_urgent=True)

    def follow(self, now_s: float) -> None:
        try:
            self._take(now_s)
            if self.faults.pop("reports", None) is not None:
                self._canary.again()
                self.rescan(is_urgent=True)
        except (InputError, PushError) as error:
            self.faults["reports"] = str(error)
            self._due, self._reports = 0.0, iter(())
        self.follower.count_long_opens(now_s)
        if self._feed.is_served and "reports" not in self.faults:
            self._canary.step(self._drawn)
            self._ask_who_serves(now_s)
        self._scan(now_s)

    @property
    def is_behind(self) -> bool:
        """Whether what is known is too old to evict by: an urgent rescan runs, or no report has come yet."""
        return self._is_urgent or (self._feed.is_served and not self._canary.stream_verified)

    def rescan(self, *, is_urgent: bool = False) -> None:
        """Have a rescan as soon as one may begin; an urgent one begins at once."""
        self._due = 0.0
        if is_urgent and not self._is_urgent:
            self._is_urgent, self._rescan, self._free_at = True, None, 0.0

    def is_gone(self, file: int) -> bool:
        return self._disk.bytes_on_disk(file, self._book.name(file)) == 0

    def spot_check(self, leaving: Collection[int]) -> bool:
        """Whether files may be evicted: reports are complete, and some random files are still on disk.

        Files that are `leaving` are not looked up. If another one is gone, someone else removes files, and a
        rescan begins.
        """
        if self._feed.is_served and not self._canary.is_fresh():
            return False
        files = [self._chance.randrange(len(self._book)) for _ in range(N_SPOTS if len(self._book) else 0)]
        drawn = {file for file in files if file not in leaving}
        if any(self._steward.bytes_on_disk(file) and self.is_gone(file) for file in drawn):
            self.rescan(is_urgent=True)
            return False
        return True

    def _take(self, now_s: float) -> None:
        """Apply reports for `READS_FOR_S` at most; the rest comes next time."""
        until = time.monotonic() + READS_FOR_S
        while True:
            report = next(self._reports, None)
            if report is None:
                self._reports = _noted(self._feed.poll(), self._closed)
                report = next(self._reports, None)
            if report is None:
                self._taken_at = time.monotonic()
                return
            if isinstance(report, Lost):
                self.n_lost += report.n_datagrams
            if isinstance(report, Lost | Restarted):
                self._due = 0.0
            if isinstance(report, Restarted):
                self._canary.again()
            self._canary.hear(report)
            self.follower.apply(report, now_s)
            if time.monotonic() > until:
                return

    def _ask_who_serves(self, now_s: float) -> None:
        """Ask the server who it is if its reports are missing: it may have been restarted."""
        if self._canary.fault is None or time.monotonic() - self._asked_at < ASK_EVERY_S:
            return
        self._asked_at = time.monotonic()
        with suppress(PushError):  # one that does not answer is an alarm of its own
            if (restarted := self._feed.refresh()) is not None:
                self.follower.apply(restarted, now_s)
                self._due = 0.0

    def _drawn(self, chance: random.Random) -> str | None:
        """A random file on disk that nobody has open, and that reports can name; None: none was found."""
        for _ in range(_DRAWS if len(self._book) else 0):
            file = chance.randrange(len(self._book))
            name = self._book.name(file)
            is_reported = self._steward.bytes_on_disk(file) and _UNREPORTED.isdisjoint(name)
            if is_reported and not self._opens.has(name):
                return name
        return None

    def _scan(self, now_s: float) -> None:
        try:
            if self._rescan is None:
                # A disk that is not mounted yet looks like an empty one.
                due = self._due if self._steward.used_bytes else 0.0
                if time.monotonic() < max(due, self._free_at):
                    return
                self._began, self._due = time.monotonic(), time.monotonic() + RESCAN_EVERY_S
                self._rescan = Rescan(self._target, self._book, self.follower, now_s=now_s)
            if not self._rescan.step():
                return
            self.n_rescans += 1
            self.newest_s = self._rescan.newest_s
            self._is_urgent = False
            self.faults.pop("inventory", None)
            self._see_if_it_is_empty()
        except (InputError, PushError) as error:
            self.faults["inventory"] = str(error)
            self._due = 0.0
        self._rescan = None
        self._rest(self._began)

    def _rest(self, began: float) -> None:
        ended = time.monotonic()
        self._free_at = ended + max(REST_S, RESTS_PER_RESCAN * (ended - began))


def _noted(reports: Iterable[Report], closed: deque[str]) -> Iterator[Report]:
    """The same reports, while the names of files that were closed go to `closed`."""
    for report in reports:
        if isinstance(report, FileClose) and (name := name_in(report.lfn)) is not None:
            closed.append(name)
        yield report
