"""One at a time: a lock held by a process, released by the kernel when it ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from features.errors import ConflictError


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; `what` says who is at work, as `pull`.

    The file stays and holds the last holder's process id. Raises ConflictError at once, naming the
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
                f"another {what} (process {holder}) is at work on {path.parent}; wait for it to end"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
