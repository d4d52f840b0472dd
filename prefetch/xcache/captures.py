"""Follows the folder of captures that a collector writes, as one capture that grows."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from features.common.errors import InputError
from features.common.input_files import InputFile
from prefetch.target import Held
from prefetch.xcache.gstream import PSEQ_MODULUS, CaptureReader, Event, FileClose, Numberings
from prefetch.xcache.rolling import PART


class FolderReader:
    """Reads a collector's folder that grows: every `poll` gives what came since the last one.

    Files are read in the order of their names, each once, also while it is written. A file that was begun is
    read to its end, also if it is moved or deleted meanwhile. `newest_bytes`: begin with the newest captures
    of this size together; None: with the first.
    """

    def __init__(self, folder: Path, *, newest_bytes: int | None = None) -> None:
        self._folder = folder
        self._numberings = Numberings(PSEQ_MODULUS)
        self._done = "" if newest_bytes is None else _before_newest(folder, newest_bytes)
        self._begun: tuple[Path, CaptureReader] | None = None

    @property
    def n_lost(self) -> int:
        """Datagrams missing so far."""
        return self._numberings.n_lost

    def poll(self) -> Iterator[FileClose]:
        """Closes since the last poll; see `events`."""
        return (event for event in self.events() if isinstance(event, FileClose))

    def events(self) -> Iterator[Event]:
        """Events since the last poll, one after the other. Raises InputError if a capture cannot be read."""
        yield from self._read_on()
        for path in _captures(self._folder):
            if self._begun is None and _name(path) > self._done:
                self._begun = path, CaptureReader(InputFile(self._folder, path.name), self._numberings)
                yield from self._read_on()
            if _name(path) > self._done:
                return  # still being written, or renamed since it was listed: later files wait

    def _read_on(self) -> Iterator[Event]:
        """What is left of the file that was begun, if one was."""
        if self._begun is None:
            return
        path, reader = self._begun
        # Looked at before reading: nothing is written to a file once it has its last name.
        is_finished = path.suffix != PART or not path.exists()
        try:
            yield from reader.events()
        except InputError:
            self._begun = None
            if path.exists():
                raise
            return  # finished or archived since it was listed, so it has another name at the next poll
        if is_finished:
            reader.close()
            self._begun, self._done = None, _name(path)


def capture_reader(path: Path) -> CaptureReader | FolderReader:
    """A reader of the capture at `path`: a file, or a collector's folder."""
    return FolderReader(path) if path.is_dir() else CaptureReader(path)


def _captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("gstream-*.capture*"), key=_name)


def _before_newest(folder: Path, n_bytes: int) -> str:
    """The name of the newest capture that is older than the newest `n_bytes`; empty if there is none."""
    for path in reversed(_captures(folder)):
        with contextlib.suppress(FileNotFoundError):
            n_bytes -= path.stat().st_size
        if n_bytes < 0:
            return _name(path)
    return ""


def _name(path: Path) -> str:
    return path.name.removesuffix(PART)


# An empty name is a temporary file, which nobody else sees and which goes with the connection.
_TEMPORARY: Final = ""
_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
CREATE TABLE latest (
    lfn TEXT PRIMARY KEY, size_bytes INTEGER, bytes_on_disk INTEGER, complete INTEGER, detach_t INTEGER
) WITHOUT ROWID;
"""


class LatestCloses:
    """The last close of each file in the captures of `reader`; may be used by several threads.

    `hosts`: only what these report (host, or host:port, in lower case); none: all is of one cache.
    It is kept in a temporary SQLite file, so that memory does not grow with the captures.
    """

    def __init__(self, reader: CaptureReader | FolderReader, hosts: Collection[str] = ()) -> None:
        self._reader, self._hosts = reader, hosts
        self._lock = threading.Lock()
        self._database = sqlite3.connect(_TEMPORARY, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        self._database.executescript(_SCHEMA)

    def of(self, lfn: str) -> Held | None:
        """The file `lfn` at its last close captured so far. Raises InputError."""
        with self._lock:
            try:
                rows = map(_row, filter(self._is_ours, self._reader.poll()))
                self._database.executemany("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?, ?)", rows)
            finally:
                # The reader gives no event twice: what came before an error stays.
                self._database.commit()
            query = "SELECT size_bytes, bytes_on_disk, complete, detach_t FROM latest WHERE lfn = ?"
            found = self._database.execute(query, (lfn,)).fetchone()
        if found is None:
            return None
        size_bytes, on_disk, complete, detach_t = found
        return Held(lfn, size_bytes, on_disk, bool(complete), detach_t, False)

    def _is_ours(self, event: FileClose) -> bool:
        host = event.host.lower()
        return not self._hosts or host in self._hosts or f"{host}:{event.port}" in self._hosts


def _row(event: FileClose) -> tuple[str, int, int, bool, int]:
    on_disk = min(event.n_blks_done * event.blk_size, event.size_bytes)
    return event.lfn, event.size_bytes, on_disk, event.complete, event.detach_t
