"""A cache's inventory, taken in parts, so that nothing else waits for a walk through a million files."""

from __future__ import annotations

import gc
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Final, NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from prefetch.steward.book import Book
from prefetch.steward.clock import newest_use_s
from prefetch.steward.feed import Report
from prefetch.steward.follower import Follower
from prefetch.target import CacheTarget, Held
from prefetch.xcache.events import FileClose
from prefetch.xcache.fstream import Packet
from replay.steward.steward import Steward

FILES_AT_ONCE: Final = 2000
FOUND_AT_ONCE: Final = 2**16
"""Files that the steward is told at once: the arrays of a million would take 100 MB."""
ABSENT_PER_HELD: Final = 2
FEWEST_ABSENT: Final = 1000
"""At least so many files become known that only earlier reports name, or `ABSENT_PER_HELD` per file held."""
N_EXPECTED: Final = 50
"""Names that the server is asked about, if the namespace does not show them."""


class _Files(NamedTuple):
    """Files by number, their bytes on disk, and their last uses, s since 1970."""

    file: IntArray
    n_bytes: IntArray
    used_s: FloatArray

    def taken(self, which: IntArray | BoolArray) -> _Files:
        """Those at some places, in that order."""
        return _Files(self.file[which], self.n_bytes[which], self.used_s[which])


def _joined(parts: Sequence[_Files]) -> _Files:
    none = _Files(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    return _Files(*map(np.concatenate, zip(none, *parts, strict=True)))


class Rescan:
    """One walk through the files of `target`, which finds changes that were not reported.

    Files that came or were reported since it began are left as they are.
    """

    def __init__(
        self, target: CacheTarget, book: Book, steward: Steward, follower: Follower, *, now_s: float
    ) -> None:
        self._target, self._book, self._steward, self._follower = target, book, steward, follower
        self._began_s = now_s
        self._files = iter(target.inventory(_some(book, steward)))
        self._seen = np.zeros(len(book), np.bool_)
        self._unreported: list[_Files] = []
        self._uses_s = array("d")

    @property
    def newest_s(self) -> float | None:
        """The newest use that the records seen so far name, s since 1970; None: none does."""
        return newest_use_s(self._uses_s)

    def step(self) -> int | None:
        """Take some files; None until the end, then the number of files that are gone.

        Raises InputError and TargetUnavailable as `CacheTarget.inventory` does; then nothing counts as gone.
        """
        some = list(islice(self._files, FILES_AT_ONCE))
        if some:
            self._take(some)
            return None
        # Uses that nobody reported count in their order.
        unreported = _joined(self._unreported)
        self._found(unreported.taken(np.lexsort((unreported.file, unreported.used_s))))
        return self._remove_unseen()

    def _take(self, some: Sequence[Held]) -> None:
        for held in some:
            self._uses_s.extend(_recorded(held))
        files = _Files(
            np.array([self._book.number(held.name, held.size_bytes) for held in some], np.int64),
            np.array([held.bytes_on_disk for held in some], np.int64),
            np.array([last_use_s(held, self._began_s) for held in some], np.float64),
        )
        self._seen[files.file[files.file < self._seen.size]] = True
        is_known = self._follower.looked_since(files.file, files.used_s)
        self._found(files.taken(is_known))
        self._unreported.append(files.taken(~is_known))

    def _found(self, files: _Files) -> None:
        self._follower.found(*files, self._began_s)

    def _remove_unseen(self) -> int:
        n_gone, unseen = 0, np.flatnonzero(~self._seen)
        for file in unseen[~self._follower.looked_since(unseen, self._began_s)].tolist():
            if self._steward.bytes_on_disk(file) is None:
                continue
            if self._target.confirm(self._book.name(file)).held is None:
                self._steward.removed(file)
                n_gone += 1
        return n_gone


class Past:
    """The disk as it was when earlier reports were sent (`prefetch.steward.follower.Disk`).

    The files of the inventory as they are now; of files that are gone a number bounded by it, with their
    reported bytes, up to `most_bytes`.
    """

    def __init__(self, n_bytes: array[int], most_bytes: int) -> None:
        self._n_bytes, self._most_bytes = n_bytes, most_bytes
        self._most_files = max(FEWEST_ABSENT, ABSENT_PER_HELD * len(n_bytes)) + len(n_bytes)

    def size_bytes(self, name: str, reported: int) -> int | None:
        """As reported, if that is plausible."""
        if len(self._n_bytes) >= self._most_files or not 0 <= reported <= self._most_bytes:
            return None
        self._n_bytes.append(reported)
        return reported

    def bytes_on_disk(self, file: int, name: str) -> int | None:
        """As the inventory has it, or as it was reported."""
        return self._n_bytes[file]

    def is_open(self, name: str) -> bool | None:
        """None: nobody can see what was open then."""
        return None


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Suspend garbage collection: a million new names hold none, and each search looks at all of them."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


@_nothing_collected()
def begin(
    target: CacheTarget,
    book: Book,
    steward: Steward,
    follower: Follower,
    reports: Iterable[Report],
    *,
    now_s: float,
) -> float | None:
    """Learn what the cache holds, and from its earlier `reports` the order in which its files were read.

    A file becomes known at its first report, or at its last use if that is older. Returns the newest use in a
    record, s since 1970; None if there is none. Raises as `Rescan.step`.
    """
    n_bytes, used_s, recorded_s = array("q"), array("d"), array("d")
    for held in target.inventory():
        book.number(held.name, held.size_bytes)
        n_bytes.append(held.bytes_on_disk)
        used_s.append(last_use_s(held, now_s))
        recorded_s.extend(_recorded(held))
    n_held = len(n_bytes)
    live, follower.disk = follower.disk, Past(n_bytes, steward.capacity_bytes)
    by_use, n_taken = np.argsort(np.array(used_s), kind="stable"), 0
    uses_s = np.array(used_s)[by_use]
    for report in chain(reports, [None]):
        until_s = math.inf if report is None else _time(report)
        n_until = int(np.searchsorted(uses_s, until_s, side="right"))
        for first in range(n_taken, n_until, FOUND_AT_ONCE):
            some = slice(first, min(n_until, first + FOUND_AT_ONCE))
            on_disk = np.frombuffer(n_bytes, np.int64)[by_use[some]]
            follower.found(by_use[some], on_disk, uses_s[some], uses_s[some])
        n_taken = max(n_taken, n_until)
        if report is not None:
            follower.apply(report, min(until_s, now_s))
    follower.disk = live
    for file in range(len(book)):
        if file >= n_held:
            steward.removed(file)
        elif steward.bytes_on_disk(file) != n_bytes[file]:
            steward.stored(file, n_bytes[file], now_s)
    return newest_use_s(recorded_s)


def _recorded(held: Held) -> Iterator[float]:
    if (used_s := held.last_use_s or held.last_detach_s) is not None:
        yield float(used_s)


def last_use_s(held: Held, now_s: float) -> float:
    """When a file was last used, s since 1970; `now_s` if it was never closed."""
    return float(held.last_use_s or held.last_detach_s or now_s)


def _time(report: Report) -> float:
    """When a report became known, s since 1970; 0 if it has no time."""
    if isinstance(report, FileClose):
        return float(report.received_t)
    return float(report.end_s) if isinstance(report, Packet) else 0.0


def _some(book: Book, steward: Steward) -> list[str]:
    """Names of files on disk, spread over all."""
    n_known = len(book)
    spread = range(0, n_known, 1 + n_known // N_EXPECTED)
    return [book.name(file) for file in spread if steward.bytes_on_disk(file) is not None]
