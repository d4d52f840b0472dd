"""The files in a namespace, read by this process or by several others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from features.common.errors import InputError, TargetUnavailable
from prefetch.target import Held
from prefetch.xcache.cinfo import BYTES_PER_BLOCK, CInfo
from prefetch.xcache.namespace import WHOLE, Part, walk

FILES_AT_ONCE: Final = 2000
MOST_PROCESSES: Final = 4


def held_below(namespace: Path, spaces: Sequence[Path] = (), part: Part = WHOLE) -> Iterator[Held]:
    """Every file with a cinfo below `namespace`; `spaces`, `part`: see `walk`. Raises InputError.

    Those whose names no command takes are unreadable ones.
    """
    for found in walk(namespace, spaces, part):
        if found.is_folder:
            raise InputError(
                f"namespace {namespace}: {found.detail}, {found.fault}: what lies there would count as gone; "
                "run as the cache's user"
            )
        if found.info is not None:
            yield held_by(found.name, found.info)
        else:
            yield unreadable(found.name, f"{namespace}{found.name}")


def held_by_processes(namespace: Path, spaces: Sequence[Path] = ()) -> Generator[Held]:
    """As `held_below`, read by processes of their own, which share the folders.

    Raises TargetUnavailable if one of them does not come to its end.
    """
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
    """What a record says of file `name`."""
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
