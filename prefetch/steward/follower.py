"""Passes to a `Steward` what a cache reports: reads by jobs, open files, and when to look at the disk."""

import dataclasses
import heapq
import itertools
import math
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from prefetch.lfn import fault_of, reported
from prefetch.steward.book import Book
from prefetch.steward.feed import NOBODY, Readers, Report, Restarted
from prefetch.xcache.events import FileClose
from prefetch.xcache.fstream import Closed, Login, Opened, Packet, Work
from replay.kernels.shadow import Inventory

MOST_OPEN: Final = 20_000
"""Most opens that are followed, the newest; no server has so many at once."""
SETTLED_S: Final = 60.0
"""Seconds within which a report of a use has come, and the clocks of those who tell them differ."""
_SMALLEST_BLOCK_BYTES: Final = 4096
"""Of `pfc.blocksize`. A prefetch asks for a byte of each block."""
_CHECKED_EVERY_S: Final = 10.0
_UNSEEN_FOR_S: Final = 3600.0
"""Seconds that an open counts which is reported and which nothing else shows."""
_CLOSE_COMES_WITHIN_S: Final = 60.0
_OPEN_COMES_WITHIN_S: Final = 3.0
"""A short read may be reported closed before it is reported open: only the open says who reads."""
_FEW_FILES: Final = 16
"""Operations on arrays take longer than to find so many files one by one."""


_OVER_AT_MOST: Final = 64
"""So many uses that are over are kept before they are removed together."""


class Key(NamedTuple):
    """An open file at a server: `stod` is the start of the server, `file_id` means something within it."""

    stod: int
    server_id: int
    file_id: int


@dataclasses.dataclass(slots=True)
class Use:
    """A file that `reader` opened between `begin_s` and `end_s`, known at `seen_s`, by our clock.

    `holds`: it keeps the file on disk; `is_counted`: its read was counted; `until_s`: its close comes by
    then, as the file was reported closed; `is_over`: it is not followed any more.
    """

    file: int
    reader: int
    begin_s: int
    end_s: int
    seen_s: float
    n_blocks: int
    holds: bool
    is_counted: bool = False
    until_s: float = math.inf
    is_over: bool = False


class FileUses:
    """The uses of one file. `begun_by` and `ended_by` return each use once."""

    def __init__(self) -> None:
        self.n_open = 0
        self.seen_s = -math.inf
        self._number = itertools.count()
        self._begun: list[tuple[int, int, Use]] = []
        self._ended: list[tuple[int, int, Use]] = []

    def add(self, use: Use) -> None:
        """Add a use; `seen_s`: when the newest became known."""
        number = next(self._number)
        heapq.heappush(self._begun, (use.begin_s, number, use))
        heapq.heappush(self._ended, (use.end_s, number, use))
        self.n_open += 1
        self.seen_s = max(self.seen_s, use.seen_s)

    def end(self, use: Use) -> None:
        use.is_over = True
        self.n_open -= 1
        self._begun, self._ended = self._without_over(self._begun), self._without_over(self._ended)

    def begun_by(self, at_s: int) -> Iterator[Use]:
        """Uses that began by `at_s` and were not returned yet, oldest first."""
        return _until(self._begun, at_s)

    def ended_by(self, at_s: int) -> Iterator[Use]:
        """Uses that may have ended by `at_s` and were not returned yet, oldest first."""
        return _until(self._ended, at_s)

    def _without_over(self, uses: list[tuple[int, int, Use]]) -> list[tuple[int, int, Use]]:
        if len(uses) <= 2 * self.n_open + _OVER_AT_MOST:
            return uses
        left = [entry for entry in uses if not entry[2].is_over]
        heapq.heapify(left)
        return left


def _until(uses: list[tuple[int, int, Use]], at_s: int) -> Iterator[Use]:
    while uses and uses[0][0] <= at_s:
        use = heapq.heappop(uses)[2]
        if not use.is_over:
            yield use


class Disk(Protocol):
    """The cache's disk, which decides what is held whatever is reported."""

    def size_bytes(self, name: str, reported: int) -> int | None:
        """The size of file `name` in bytes, which a report gives as `reported`; None if it is not there."""

    def bytes_on_disk(self, file: int, name: str) -> int | None:
        """The bytes that file number `file` has on disk now; None if that is not known."""

    def is_open(self, name: str) -> bool | None:
        """Whether the server's process has file `name` open; None: that cannot be seen."""


class Follower:
    """Follows a cache by its reports. Times are s since 1970, those of reports by the cache's clock.

    A report says when to look; what is there, and open, `disk` says: forged reports keep no file.
    What counts as a read: an open whose close reports more bytes than our own touches and prefetches ask
    for, or that lasts longer than `ours_last_s`; and a close of the g-stream without such an open. Reads of
    test files do not count. Where `readers` are distinguished and `reports_opens` is true, closes of the
    g-stream wait for the open, which names the reader.
    """

    def __init__(
        self,
        book: Book,
        *,
        ours_last_s: float,
        disk: Disk,
        readers: Readers,
        reports_opens: Callable[[], bool],
    ) -> None:
        self.disk = disk
        self._book, self._steward = book, book.steward
        self._checked_s = 0.0
        self._ours_last_s = ours_last_s
        self._readers, self._reports_opens = readers, reports_opens
        self._waiting: deque[tuple[float, int, FileClose]] = deque()
        self._uses: dict[Key, Use] = {}
        self._of_file: dict[int, FileUses] = {}
        self._closing: dict[int, float] = {}
        self._to_look: dict[int, float] = {}
        # By file: the latest read counted from a close, the latest counted from an open, the latest look.
        self._closed_s, self._opened_s, self._looked_s = array("d"), array("d"), array("d")

    @property
    def growing(self) -> Collection[int]:
        """Files that may have grown since the last look: open ones, and those closed just now."""
        return self._of_file.keys() | self._closing.keys() | {file for _, file, _ in self._waiting}

    @property
    def open_files(self) -> Collection[int]:
        return self._of_file.keys()

    def looked_since(self, files: IntArray, at_s: float | FloatArray) -> BoolArray:
        """Whether the disk was looked at for each of `files` at `at_s` or later, by our clock."""
        self._grow()
        return np.frombuffer(self._looked_s)[files] >= at_s if files.size else np.zeros(0, np.bool_)

    def take_inventory(
        self, files: IntArray, n_bytes: IntArray, used_s: FloatArray, now_s: float | FloatArray
    ) -> None:
        """Take files of an inventory begun at `now_s`, each once: bytes on disk, and last uses.

        A use later than the last look at a file was not reported: it counts as a read.
        """
        if files.size <= _FEW_FILES:
            began_s = now_s.tolist() if isinstance(now_s, np.ndarray) else [now_s] * files.size
            columns = files.tolist(), n_bytes.tolist(), used_s.tolist(), began_s
            for file in zip(*columns, strict=True):
                self._take_file(*file)
            return
        is_read, is_new = ~self.looked_since(files, used_s), ~self.looked_since(files, now_s)
        if tests := self._book.tests:
            is_read &= np.fromiter((file not in tests for file in files.tolist()), np.bool_, files.size)
        at_s = np.minimum(used_s, now_s)
        late = is_read & ~is_new
        for file, read_s in zip(files[late].tolist(), at_s[late].tolist(), strict=True):
            self._steward.read(file, NOBODY, read_s)
        new = files[is_new]
        if new.size:
            np.frombuffer(self._looked_s)[new] = np.broadcast_to(now_s, files.shape)[is_new]
            self._steward.take_inventory(Inventory(new, n_bytes[is_new], at_s[is_new], is_read[is_new]))

    def _take_file(self, file: int, n_bytes: int, used_s: float, now_s: float) -> None:
        self._grow()
        is_read, is_new = self._looked_s[file] < used_s, self._looked_s[file] < now_s
        at_s = min(used_s, now_s)
        if is_read:
            self._read(file, NOBODY, at_s)
        if is_new:
            self._looked_s[file] = now_s
            self._steward.stored(file, n_bytes, at_s)

    def apply(self, report: Report, now_s: float) -> None:
        self._take_waiting(now_s)
        if isinstance(report, FileClose):
            self._file_close(report, now_s)
        elif isinstance(report, Login | Work):
            self._readers.note(report)
        elif isinstance(report, Packet):
            for opened in report.opened:
                self._opened(Key(report.stod, report.server_id, opened.file_id), opened, report, now_s)
            for closed in report.closed:
                self._closed(Key(report.stod, report.server_id, closed.file_id), closed, now_s)
        elif isinstance(report, Restarted):
            for key in [key for key in self._uses if key.stod != report.stod]:
                self._end(key)

    def count_long_opens(self, now_s: float) -> None:
        """Count reads of files that have been open for long, and end uses whose close was not reported."""
        self._take_waiting(now_s)
        closed = self._not_open(now_s)
        for key, use in list(self._uses.items()):
            if now_s - use.seen_s > self._ours_last_s:
                self._count(use, now_s)
            if now_s > use.until_s or use.file in closed:
                self._end(key)
        for file in [file for file, until_s in self._closing.items() if now_s > until_s]:
            del self._closing[file]
        to_look, self._to_look = self._to_look, {}
        for file, used_s in to_look.items():
            self._look(file, used_s, now_s)

    def _not_open(self, now_s: float) -> set[int]:
        """Files that are reported open and are not, looked for every `_CHECKED_EVERY_S`."""
        if abs(now_s - self._checked_s) < _CHECKED_EVERY_S:
            return set()
        self._checked_s = now_s
        files = set[int]()
        for file, uses in self._of_file.items():
            age_s = now_s - uses.seen_s
            is_open = self.disk.is_open(self._book.name(file))
            if age_s > (_UNSEEN_FOR_S if is_open is None else _CHECKED_EVERY_S) and not is_open:
                files.add(file)
        return files

    def _opened(self, key: Key, opened: Opened, packet: Packet, now_s: float) -> None:
        if opened.for_writing or (file := self._number(opened.lfn, opened.size_bytes)) is None:
            return
        if key in self._uses:
            self._end(key)
        while len(self._uses) >= MOST_OPEN:
            self._end(next(iter(self._uses)))
        end_s = max(packet.begin_s, packet.end_s)
        reader = self._readers.number(key.stod, key.server_id, opened.user_id)
        n_blocks = max(0, opened.size_bytes) // _SMALLEST_BLOCK_BYTES
        holds = self.disk.is_open(self._book.name(file)) is not False
        use = self._uses[key] = Use(file, reader, packet.begin_s, end_s, now_s, n_blocks, holds)
        self._of_file.setdefault(file, FileUses()).add(use)
        if holds:
            self._steward.opened(file)

    def _closed(self, key: Key, closed: Closed, now_s: float) -> None:
        use = self._uses.get(key)
        if use is None:
            return
        if closed.read_bytes or closed.readv_bytes > 1 + use.n_blocks:
            self._count(use, now_s)
        self._end(key)
        self._closing[use.file] = now_s + _CLOSE_COMES_WITHIN_S

    def _end(self, key: Key) -> None:
        use = self._uses.pop(key)
        self._of_file[use.file].end(use)
        if not self._of_file[use.file].n_open:
            del self._of_file[use.file]
        if use.holds:
            self._steward.closed(use.file)

    def _file_close(self, event: FileClose, now_s: float) -> None:
        file = self._number(event.lfn, event.size_bytes)
        if file is None:
            return
        waits = self._readers and self._reports_opens() and file not in self._of_file
        if waits and len(self._waiting) < MOST_OPEN:
            self._waiting.append((now_s + _OPEN_COMES_WITHIN_S, file, event))
        else:
            self._take(file, event, now_s)

    def _take_waiting(self, now_s: float) -> None:
        while self._waiting and self._waiting[0][0] <= now_s:
            _, file, event = self._waiting.popleft()
            self._take(file, event, now_s)

    def _take(self, file: int, event: FileClose, now_s: float) -> None:
        self._closing.pop(file, None)
        if (uses := self._of_file.get(file)) is not None:
            # A miss is counted before the file is on disk.
            for use in [] if event.is_ours else uses.begun_by(event.detach_t):
                self._count(use, now_s)
            for use in uses.ended_by(event.detach_t):
                use.until_s = now_s + _CLOSE_COMES_WITHIN_S
        if not event.is_ours and self._opened_s[file] < event.attach_t:
            self._closed_s[file] = event.attach_t
            self._read(file, NOBODY, min(float(event.attach_t), now_s))
        used_s = min(float(event.detach_t), now_s)
        if self._looked_s[file] < now_s:
            self._look(file, used_s, now_s)
        else:  # once per step: a report says when to look, however many there are
            self._to_look[file] = used_s
        # A use is known by its report, also if the cache's clock is ahead.
        self._looked_s[file] = max(self._looked_s[file], min(float(event.detach_t), now_s + SETTLED_S))

    def _look(self, file: int, used_s: float, now_s: float) -> None:
        n_bytes = self.disk.bytes_on_disk(file, self._book.name(file))
        if n_bytes is None:
            return
        self._looked_s[file] = max(self._looked_s[file], now_s)
        if n_bytes:
            self._steward.stored(file, n_bytes, used_s)
        else:
            self._steward.removed(file)

    def _count(self, use: Use, now_s: float) -> None:
        if use.is_counted:
            return
        use.is_counted = True
        self._opened_s[use.file] = max(self._opened_s[use.file], use.end_s)
        if not use.begin_s <= self._closed_s[use.file] <= use.end_s:
            self._read(use.file, use.reader, min((use.begin_s + use.end_s) / 2, now_s))

    def _read(self, file: int, reader: int, at_s: float) -> None:
        if file not in self._book.tests:
            self._steward.read(file, reader, at_s)

    def _number(self, lfn: str, reported_bytes: int) -> int | None:
        """The number of the file that a report names; None if no file on disk is called so."""
        name = name_in(lfn)
        if name is None:
            return None
        file = self._book.find(name)
        if file is None:
            size_bytes = self.disk.size_bytes(name, reported_bytes)
            if size_bytes is None:
                return None
            file = self._book.number(name, size_bytes)
        self._grow()
        return file

    def _grow(self) -> None:
        more = len(self._book) - len(self._looked_s)
        if more > 0:
            for times in (self._closed_s, self._opened_s, self._looked_s):
                times.frombytes(bytes(8 * more))


def name_in(lfn: str) -> str | None:
    """The name of the file that a report calls `lfn`; None if no command would take it."""
    name = reported(lfn)
    return name if fault_of(name) is None else None
