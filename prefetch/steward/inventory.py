"""A steward's inventories: the first, merged with earlier reports, and rescans, done in steps."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import numpy as np

from features.common.arrays import joined, pages, taken
from prefetch.steward.book import FILES_AT_ONCE, NO_RECORDS, Book, Listing, Records, newest_use_s
from prefetch.steward.clock import uptime_s
from prefetch.steward.feed import Report
from prefetch.steward.follower import SETTLED_S, Follower
from prefetch.target import CacheTarget, Held
from prefetch.xcache.events import FileClose
from prefetch.xcache.fstream import Packet

FOUND_AT_ONCE: Final = 2**16
"""Files that the steward gets at once: the arrays of a million would take 100 MB."""
ABSENT_PER_HELD: Final = 2
FEWEST_ABSENT: Final = 1000
"""At least so many files become known that only earlier reports name, or `ABSENT_PER_HELD` per file held."""
N_EXPECTED: Final = 50
"""Names that the server is asked about, if the namespace does not show them."""


class Rescan:
    """A walk through `target` in steps, for unreported changes; files looked at since it began are left."""

    def __init__(self, target: CacheTarget, book: Book, follower: Follower, *, now_s: float) -> None:
        self._target, self._book, self._follower = target, book, follower
        self._began_s = now_s
        self._files = pages(target.inventory(some_held(book)), FILES_AT_ONCE)
        self._seen = np.zeros(len(book), np.bool_)
        self._unreported = [NO_RECORDS]
        self._uses_s = array("d")

    @property
    def newest_s(self) -> float | None:
        """The newest use in the records read so far, s since 1970; None: there is none."""
        return newest_use_s(self._uses_s)

    def step(self) -> bool:
        """Take some files; True at the end, when those that are gone were removed.

        Raises InputError and TargetUnavailable as `CacheTarget.inventory` does; then nothing counts as gone.
        """
        if some := next(self._files, None):
            self._take(some)
            return False
        # Uses that nobody reported count in their order.
        unreported = joined(self._unreported)
        used_s = unreported.used_by(self._began_s)
        self._pass_on(taken(unreported, np.lexsort((unreported.file, used_s))))
        self._remove_unseen()
        return True

    def _take(self, some: Sequence[Held]) -> None:
        files = Records.of(some, lambda held: self._book.number(held.name, held.size_bytes))
        self._uses_s.extend(files.used_s[~np.isnan(files.used_s)])
        self._seen[files.file[files.file < self._seen.size]] = True
        is_known = self._follower.looked_since(files.file, files.used_by(self._began_s))
        self._pass_on(taken(files, is_known))
        self._unreported.append(taken(files, ~is_known))

    def _pass_on(self, files: Records) -> None:
        self._follower.take_inventory(files.file, files.n_bytes, files.used_by(self._began_s), self._began_s)

    def _remove_unseen(self) -> None:
        unseen = np.flatnonzero(~self._seen)
        for file in unseen[~self._follower.looked_since(unseen, self._began_s)].tolist():
            if self._book.steward.bytes_on_disk(file) is None:
                continue
            if self._target.confirm(self._book.name(file)).held is None:
                self._book.steward.removed(file)


class Past:
    """The disk while earlier reports are read: a `follower.Disk` that looks at nothing.

    `n_bytes`: of the files of the inventory. Files that only reports name count with their reported bytes,
    up to `most_bytes` each; their number is bounded.
    """

    def __init__(self, n_bytes: array[int], most_bytes: int) -> None:
        self._n_bytes, self._most_bytes = n_bytes, most_bytes
        self._most_files = max(FEWEST_ABSENT, ABSENT_PER_HELD * len(n_bytes)) + len(n_bytes)

    def size_bytes(self, name: str, reported: int) -> int | None:
        if len(self._n_bytes) >= self._most_files or not 0 <= reported <= self._most_bytes:
            return None
        self._n_bytes.append(reported)
        return reported

    def bytes_on_disk(self, file: int, name: str) -> int | None:
        return self._n_bytes[file]

    def is_open(self, name: str) -> bool | None:
        """None, not known: a past report does not say which files were open."""
        return None


def begin(
    listing: Listing, book: Book, follower: Follower, reports: Iterable[Report], *, now_s: float
) -> None:
    """Take the files of `listing` and earlier `reports`, in the order in which files were used.

    A use that both show counts once. From the first report on that came since the walk began, reports are
    followed as live ones, by the disk. Raises InputError and PushError as `reports` does.
    """
    steward = book.steward
    n_bytes = array("q", listing.n_bytes.tobytes())
    listed, reports = _InOrder(listing, follower), iter(reports)
    live, follower.disk = follower.disk, Past(n_bytes, steward.capacity_bytes)
    new: list[Report] = []
    received_s = 0.0
    for report in reports:
        # The past takes a while, and the clock may have been set since the walk.
        until_s = max(now_s, listing.at_s + uptime_s() - listing.uptime_s) + SETTLED_S
        since_s = listing.at_s - SETTLED_S
        if isinstance(report, FileClose) and since_s <= report.received_t <= until_s:
            new = [report]
            break
        if isinstance(report, FileClose):
            received_s = max(received_s, min(report.received_t, listing.at_s))
        # A sender may name any time.
        time_s, use_s = _times_s(report)
        use_s = min(use_s, received_s + SETTLED_S)
        listed.until(use_s)
        # A use of which the cache's clock is ahead of ours is known by its report.
        follower.apply(report, min(max(time_s, use_s), listing.at_s))
    listed.until(math.inf)
    follower.disk = live
    for file in range(len(book)):
        if file >= listing.n_bytes.size:
            steward.removed(file)
        elif steward.bytes_on_disk(file) != n_bytes[file]:
            steward.stored(file, n_bytes[file], listing.at_s)
    for report in chain(new, reports):
        follower.apply(report, now_s)


class _InOrder:
    """Passes the files of `listing` to `follower` in the order of their last uses."""

    def __init__(self, listing: Listing, follower: Follower) -> None:
        self._listing, self._follower = listing, follower
        self._files, self._n_taken = np.argsort(listing.used_s, kind="stable"), 0
        self._next_s = -math.inf

    def until(self, at_s: float) -> None:
        if at_s <= self._next_s:
            return
        n_until = int(np.searchsorted(self._listing.used_s, at_s, sorter=self._files))
        for first in range(self._n_taken, n_until, FOUND_AT_ONCE):
            files = self._files[first : min(n_until, first + FOUND_AT_ONCE)]
            used_s = self._listing.used_s[files]
            self._follower.take_inventory(files, self._listing.n_bytes[files], used_s, used_s)
        self._n_taken = max(self._n_taken, n_until)
        following = self._files[self._n_taken : self._n_taken + 1]
        self._next_s = float(self._listing.used_s[following[0]]) if following.size else math.inf


def _times_s(report: Report) -> tuple[float, float]:
    """When a report was received or sent, and when its uses began or ended, s since 1970; 0: it has none."""
    if isinstance(report, FileClose):
        return float(report.received_t), float(report.detach_t)
    return (float(report.end_s), float(report.begin_s)) if isinstance(report, Packet) else (0.0, 0.0)


def some_held(book: Book) -> list[str]:
    """Names of files on disk, spread over all."""
    n_known = len(book)
    spread = range(0, n_known, 1 + n_known // N_EXPECTED)
    return [book.name(file) for file in spread if book.steward.bytes_on_disk(file) is not None]
