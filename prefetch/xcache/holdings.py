"""What a cache holds: by the records in its namespace, or by the closes that it reported."""

import multiprocessing
import os
import signal
import sqlite3
import stat
import threading
import weakref
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from features.common.errors import InputError, TargetUnavailable
from prefetch.lfn import reported
from prefetch.target import Held
from prefetch.xcache.cinfo import BYTES_PER_BLOCK, CInfo
from prefetch.xcache.events import FileClose
from prefetch.xcache.gstream import CaptureReader, FolderReader
from prefetch.xcache.namespace import WHOLE, Part, walk

FILES_AT_ONCE: Final = 2000
MOST_PROCESSES: Final = 4


def held_below(namespace: Path, spaces: Sequence[Path] = (), part: Part = WHOLE) -> Iterator[Held]:
    """Every file with a cinfo; those that no command can name count as unreadable. Raises InputError."""
    for file in walk(namespace, spaces, part):
        if file.is_folder:
            raise InputError(
                f"namespace {namespace}: {file.detail}, {file.fault}: what lies there would count as gone; "
                "run as the cache's user"
            )
        if file.info is not None:
            yield held_by(file.name, file.info)
        else:
            yield unreadable(file.name, f"{namespace}{file.name}")


def held_by_processes(namespace: Path, spaces: Sequence[Path] = ()) -> Generator[Held]:
    """As `held_below`, read by several processes. Raises TargetUnavailable if one of them ends early."""
    n_parts = min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
    with ExitStack() as stack:
        parts = [Part(number, n_parts) for number in range(n_parts)]
        reading = {stack.enter_context(_process(namespace, spaces, part)) for part in parts}
        while reading:
            for connection in wait(list(reading)):
                assert isinstance(connection, Connection)
                files = _received(connection, namespace)
                if not files:
                    reading.remove(connection)
                yield from map(Held._make, files)


@contextmanager
def _process(namespace: Path, spaces: Sequence[Path], part: Part) -> Iterator[Connection]:
    """A process that reads a part; what it sends comes through the connection."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(theirs, namespace, spaces, part), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.kill()
        process.join()


def _received(connection: Connection, namespace: Path) -> list[tuple[Any, ...]]:
    """Some files as plain tuples, none at the end."""
    try:
        some: list[tuple[Any, ...]] | InputError = connection.recv()
    except (EOFError, OSError) as error:
        raise TargetUnavailable(f"a process that reads namespace {namespace} has ended early") from error
    if isinstance(some, InputError):
        raise some
    return some


def unreadable(name: str, path: str) -> Held:
    """A file at `path` whose record cannot be read, or is not believed: what it has on disk all the same."""
    size_bytes, on_disk, changed_s = 0, 0, None
    with suppress(OSError, ValueError):
        status = os.stat(path)  # noqa: PTH116  a name need not be text
        if stat.S_ISREG(status.st_mode):
            size_bytes, on_disk = status.st_size, status.st_blocks * BYTES_PER_BLOCK
            changed_s = int(status.st_mtime)
    return Held(name, size_bytes, on_disk, False, None, False, unreadable=True, last_use_s=changed_s)


def held_by(name: str, info: CInfo) -> Held:
    on_disk, size = info.bytes_on_disk, info.size_bytes
    # `info.complete` would count the blocks once more, for each of a million files.
    is_whole = on_disk == size
    return Held(name, size, on_disk, is_whole, info.last_detach_s, info.is_open, last_use_s=info.last_use_s)


def _send(to: Connection, namespace: Path, spaces: Sequence[Path], part: Part) -> None:
    """Send files as plain tuples, which cost half of what named ones do; none at the end, or the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that reads, who ends this process
    files = held_below(namespace, spaces, part)
    try:
        while some := [tuple(held) for held in islice(files, FILES_AT_ONCE)]:
            to.send(some)
        to.send([])
    except InputError as error:
        to.send(error)


# An empty name is a temporary file, which nobody else sees and which goes with the connection.
_TEMPORARY: Final = ""
_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
CREATE TABLE latest (
    is_named INTEGER, lfn TEXT, size_bytes INTEGER, bytes_on_disk INTEGER, complete INTEGER, detach_t INTEGER,
    PRIMARY KEY (is_named, lfn)
) WITHOUT ROWID;
"""
_LATEST: Final = """
SELECT size_bytes, bytes_on_disk, complete, detach_t FROM latest
WHERE lfn = ? AND is_named = (SELECT max(is_named) FROM latest)
"""


class LatestCloses:
    """The last close of each file in the captures of `reader`; may be used by several threads.

    `hosts`: only what these report (host, or host:port, in lower case). Without any only what comes under the
    `name` of the cache; if nothing does, all is of one cache.
    It is kept in a temporary SQLite file, so that memory does not grow with the captures.
    """

    def __init__(
        self, reader: CaptureReader | FolderReader, hosts: Collection[str] = (), name: str = ""
    ) -> None:
        self._reader, self._hosts, self._name = reader, hosts, name
        self._lock = threading.Lock()
        self._database = sqlite3.connect(_TEMPORARY, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        self._database.executescript(_SCHEMA)

    def of(self, lfn: str) -> Held | None:
        """The file `lfn` at its last close captured so far. Raises InputError."""
        with self._lock:
            try:
                rows = map(self._row, filter(self._is_ours, self._reader.poll()))
                self._database.executemany("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?, ?, ?)", rows)
            finally:
                # The reader gives no event twice: what came before an error stays.
                self._database.commit()
            row = self._database.execute(_LATEST, (lfn,)).fetchone()
        if row is None:
            return None
        size_bytes, on_disk, complete, detach_t = row
        return Held(lfn, size_bytes, on_disk, bool(complete), detach_t, False)

    def _is_ours(self, event: FileClose) -> bool:
        host = event.address.lower()
        return not self._hosts or host in self._hosts or f"{host}:{event.port}" in self._hosts

    def _row(self, event: FileClose) -> tuple[bool, str, int, int, bool, int]:
        size, on_disk = event.size_bytes, min(event.disk_bytes, event.size_bytes)
        is_named = bool(self._hosts) or event.sender == self._name
        return is_named, reported(event.lfn), size, on_disk, event.complete, event.detach_t
