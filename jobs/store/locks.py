"""Locks of one machine, held by a process; the kernel releases them however the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from features.errors import ConflictError


def is_held(path: Path) -> bool:
    """Whether a process of this machine holds the lock file `path`. Raises OSError if it cannot be read."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


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
            raise ConflictError(
                f"another {work} (process {holder}) is at work on {path.parent}; wait for it to end"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
