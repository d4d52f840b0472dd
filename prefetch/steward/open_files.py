"""Files that are open on this machine, by the kernel's own list; a cache reports an open a second late."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_RECENT_S: Final = 0.1

_Inode = tuple[int, int]


class OpenFiles:
    """Files of the namespace at `root` that are open in a process whose list of files we may read.

    They are compared by device and inode, whatever a process in another container calls them. Processes of
    other users are not seen: a steward has to run as the cache's user.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._inodes: set[_Inode] = set()
        self._looked_at = -math.inf
        self._looking = threading.Lock()

    def has(self, name: str, *, within_s: float = _RECENT_S) -> bool:
        """Whether file `name` of the cache was open at a look that began at most `within_s` ago."""
        since = time.monotonic() - within_s
        with self._looking:  # who waits here shares the next look with others who do
            if self._looked_at < since:
                self.look()
            inodes = self._inodes
        try:
            status = Path(f"{self._root}{name}").stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) in inodes

    def has_now(self, name: str) -> bool:
        """Whether file `name` is open, by a look that begins now."""
        return self.has(name, within_s=0.0)

    def look(self) -> None:
        """See what is open now; with many open files this takes a while."""
        began = time.monotonic()
        self._inodes, self._looked_at = _open_inodes(), began


def _open_inodes() -> set[_Inode]:
    """The files behind all descriptors that we may see."""
    found = set[_Inode]()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            found.update(_open_by(process / "fd"))
    return found


def _open_by(folder: Path) -> Iterator[_Inode]:
    """The files behind one process's descriptors; none if it ended, or is another user's."""
    with contextlib.suppress(OSError):
        for one in folder.iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                status = one.stat()
                yield status.st_dev, status.st_ino
