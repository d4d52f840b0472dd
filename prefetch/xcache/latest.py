"""The last close of every file in captures, found by name."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from typing import Final

from prefetch.target import Held
from prefetch.xcache.captures import FolderReader
from prefetch.xcache.gstream import CaptureReader, FileClose

# An empty name is a temporary file, which nobody else sees and which goes with the connection.
_TEMPORARY: Final = ""
_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
CREATE TABLE latest (
    lfn TEXT PRIMARY KEY, size_bytes INTEGER, bytes_on_disk INTEGER, complete INTEGER, detach_t INTEGER
) WITHOUT ROWID;
"""


class LatestCloses:
    """The last close of each file in the captures of `reader`; for several threads.

    Kept in a temporary SQLite file, so that memory does not grow with the captures that are kept.
    """

    def __init__(self, reader: CaptureReader | FolderReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._database = sqlite3.connect(_TEMPORARY, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        self._database.executescript(_SCHEMA)

    def of(self, lfn: str) -> Held | None:
        """The file `lfn` at its last close captured so far. Raises InputError."""
        with self._lock:
            try:
                rows = map(_row, self._reader.poll())
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


def _row(event: FileClose) -> tuple[str, int, int, bool, int]:
    on_disk = min(event.n_blks_done * event.blk_size, event.size_bytes)
    return event.lfn, event.size_bytes, on_disk, event.complete, event.detach_t
