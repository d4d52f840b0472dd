"""Tells a `Steward` what a cache reports: reads by jobs, files that are open, bytes on disk."""

from __future__ import annotations

import dataclasses
import math
import re
from array import array
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from features.errors import PushRejected
from prefetch.lfn import checked_lfn
from prefetch.steward.book import Book
from prefetch.steward.feed import Report, Restarted
from prefetch.steward.readers import NOBODY, Readers
from prefetch.xcache.events import FileClose
from prefetch.xcache.fstream import Closed, Opened, Packet
from prefetch.xcache.users import Login, Work
from replay.steward.steward import Steward

_SMALLEST_BLOCK_BYTES: Final = 4096
"""Of `pfc.blocksize`. A prefetch asks for a byte of each block."""
_CLOSE_COMES_WITHIN_S: Final = 60.0
_OPEN_COMES_WITHIN_S: Final = 3.0
"""A short read may be reported closed before it is reported open: only the open says who reads."""
_SLASHES = re.compile("//+")


class Key(NamedTuple):
    """An open file at a server: `stod` is the start of the server, `file_id` means something within it."""

    stod: int
    server_id: int
    file_id: int


@dataclasses.dataclass
class Use:
    """A file that `reader` opened between `begin_s` and `end_s`, known at `seen_s`, by our clock.

    `is_counted`: its read was; `until_s`: nobody has the file open any more, so that its close comes by then.
    """

    file: int
    reader: int
    size_bytes: int
    begin_s: int
    end_s: int
    seen_s: float
    is_counted: bool = False
    until_s: float = math.inf


class Follower:
    """Follows a cache by its reports. Times are s since 1970, those of reports by the cache's clock.

    Reads by our own touches and prefetches do not count: an open becomes a read when its close reports more
    bytes than they ask for, or when it lasts longer than `ours_last_s`. The g-stream counts a read only where
    the f-stream reported no open for it. `on_disk`: the bytes that the cache now has of a file, by its name.
    Where `readers` are told apart and `reports_opens` is true, closes of the g-stream wait for opens.
    """

    def __init__(
        self,
        book: Book,
        steward: Steward,
        *,
        ours_last_s: float,
        on_disk: Callable[[str], int],
        readers: Readers,
        reports_opens: Callable[[], bool],
    ) -> None:
        self._book, self._steward = book, steward
        self._ours_last_s, self._on_disk = ours_last_s, on_disk
        self._readers, self._reports_opens = readers, reports_opens
        self._waiting: deque[tuple[float, int, FileClose]] = deque()
        self._uses: dict[Key, Use] = {}
        self._of_file: dict[int, set[Key]] = {}
        self._closing: dict[int, float] = {}
        self._gone: dict[int, float] = {}
        # By file: the latest read counted from a close, the latest counted from an open, the latest bytes.
        self._closed_s, self._opened_s, self._stored_s = array("d"), array("d"), array("d")

    @property
    def growing(self) -> Collection[int]:
        """Files that may have more on disk than is known: open ones, and those closed just now."""
        return self._of_file.keys() | self._closing.keys() | {file for _, file, _ in self._waiting}

    @property
    def open_files(self) -> Collection[int]:
        """The files that are open, as far as reported."""
        return self._of_file.keys()

    def stored_since(self, file: int, at_s: float) -> bool:
        """Whether the cache has reported bytes of `file` at `at_s` or later, by our clock."""
        self._grow()
        return self._stored_s[file] >= at_s

    def found(self, file: int, n_bytes: int, used_s: float, now_s: float) -> None:
        """Take a file of an inventory begun at `now_s`, its bytes on disk and its last use.

        A use that ended after the last report on the file was not reported: it counts as a read.
        """
        self._grow()
        if used_s > self._stored_s[file]:
            self._steward.read(file, NOBODY, min(used_s, now_s))
        if self._stored_s[file] < now_s:
            self._stored_s[file] = now_s
            self._steward.stored(file, n_bytes, min(used_s, now_s))

    def removed(self, file: int, now_s: float) -> None:
        """The file was evicted: a close that is reported late says nothing of what is on disk."""
        self._gone[file] = now_s + _CLOSE_COMES_WITHIN_S
        self._steward.removed(file)

    def apply(self, report: Report, now_s: float) -> None:
        """Follow one report that is known at `now_s`."""
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

    def ripen(self, now_s: float) -> None:
        """Count the reads of files that have been open for long, and end what was closed unheard."""
        self._take_waiting(now_s)
        for key, use in list(self._uses.items()):
            if now_s - use.seen_s > self._ours_last_s:
                self._count(use, now_s)
            if now_s > use.until_s:
                self._end(key)
        for passing in (self._closing, self._gone):
            for file in [file for file, until_s in passing.items() if now_s > until_s]:
                del passing[file]

    def _opened(self, key: Key, opened: Opened, packet: Packet, now_s: float) -> None:
        if opened.for_writing or (file := self._number(opened.lfn, opened.size_bytes)) is None:
            return
        if key in self._uses:
            self._end(key)
        end_s = max(packet.begin_s, packet.end_s)
        reader = self._readers.number(key.stod, key.server_id, opened.user_id)
        self._uses[key] = Use(file, reader, opened.size_bytes, packet.begin_s, end_s, now_s)
        self._of_file.setdefault(file, set()).add(key)
        self._steward.opened(file)

    def _closed(self, key: Key, closed: Closed, now_s: float) -> None:
        use = self._uses.get(key)
        if use is None:
            return
        if closed.read_bytes or closed.readv_bytes > 1 + use.size_bytes // _SMALLEST_BLOCK_BYTES:
            self._count(use, now_s)
        self._end(key)
        self._closing[use.file] = now_s + _CLOSE_COMES_WITHIN_S

    def _end(self, key: Key) -> None:
        file = self._uses.pop(key).file
        self._of_file[file].discard(key)
        if not self._of_file[file]:
            del self._of_file[file]
        self._steward.closed(file)

    def _file_close(self, event: FileClose, now_s: float) -> None:
        file = self._number(event.lfn, event.size_bytes)
        if file is None:
            return
        if self._readers and self._reports_opens() and file not in self._of_file:
            self._waiting.append((now_s + _OPEN_COMES_WITHIN_S, file, event))
        else:
            self._take(file, event, now_s)

    def _take_waiting(self, now_s: float) -> None:
        while self._waiting and self._waiting[0][0] <= now_s:
            _, file, event = self._waiting.popleft()
            self._take(file, event, now_s)

    def _take(self, file: int, event: FileClose, now_s: float) -> None:
        self._closing.pop(file, None)
        for key in self._of_file.get(file, ()):
            use = self._uses[key]
            # A miss is counted before the file is on disk.
            if not event.is_ours and use.begin_s <= event.detach_t:
                self._count(use, now_s)
            if use.end_s <= event.detach_t:
                use.until_s = now_s + _CLOSE_COMES_WITHIN_S
        if not event.is_ours and self._opened_s[file] < event.attach_t:
            self._closed_s[file] = event.attach_t
            self._steward.read(file, NOBODY, min(float(event.attach_t), now_s))
        on_disk = min(event.n_blks_done * event.blk_size, event.size_bytes)
        if on_disk and file in self._gone:
            on_disk = self._on_disk(self._book.name(file))
        if on_disk:
            self._stored_s[file] = now_s
            self._steward.stored(file, on_disk, min(float(event.detach_t), now_s))

    def _count(self, use: Use, now_s: float) -> None:
        if use.is_counted:
            return
        use.is_counted = True
        self._opened_s[use.file] = max(self._opened_s[use.file], use.end_s)
        if not use.begin_s <= self._closed_s[use.file] <= use.end_s:
            self._steward.read(use.file, use.reader, min((use.begin_s + use.end_s) / 2, now_s))

    def _number(self, lfn: str, size_bytes: int) -> int | None:
        """The number of the file that a report names; None if no file can be called so."""
        try:
            file = self._book.number(checked_lfn(_SLASHES.sub("/", lfn)), size_bytes)
        except PushRejected:
            return None
        self._grow()
        return file

    def _grow(self) -> None:
        more = len(self._book) - len(self._stored_s)
        if more > 0:
            for times in (self._closed_s, self._opened_s, self._stored_s):
                times.frombytes(bytes(8 * more))
