"""Locks of one machine, held by a process; the kernel releases them however the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from features.common.errors import ConfigError, ConflictError


@contextmanager
def alone_at(folder: Path, work: str) -> Iterator[None]:
    """Hold a lock on `folder` itself while the block runs, whatever it is called; nothing is written.

    `work`: the kind of work, for example `steward of cache 'xc1'`. Raises ConflictError at once, naming the
    holder, if another process of this machine has it, ConfigError if the folder cannot be locked, for example
    on a network file system.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(str(folder), f"cannot be locked for the {work}: {error.strerror}") from error
    try:
        _lock(descriptor, folder, work)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, work: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConflictError(_at_work(work, _holder(descriptor), folder)) from None
    except OSError as error:
        raise ConfigError(str(folder), f"cannot be locked for the {work}: {error.strerror}") from error


def _holder(descriptor: int) -> str:
    """The process that holds the lock on what is open as `descriptor`, by the kernel's list."""
    number = f":{os.fstat(descriptor).st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1:2] == ["FLOCK"] and words[5].endswith(number):
                return words[4]
    return "unknown"


@contextmanager
def exclusive(path: Path, work: str) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; `work`: the kind of work, for example `pull`.

    The file stays, and contains the process id of its last holder. Raises ConflictError at once, naming the
    holder, if another process has it. Local file systems only.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            raise ConflictError(_at_work(work, holder, path.parent)) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _at_work(work: str, holder: str, folder: Path) -> str:
    return f"another {work} (process {holder}) is at work on {folder}; wait for it to end"
