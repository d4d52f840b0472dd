"""Files that are open on this machine, by the kernel's own list: a cache reports an open a second late."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FRESH_S: Final = 0.1


class OpenFiles:
    """Files of a namespace at `root` that a process has open whose list of files we may read.

    Those of other users' processes are not seen: a steward should run as the cache's user.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: set[str] = set()
        self._looked_at = -_FRESH_S

    def has(self, name: str) -> bool:
        """Whether file `name` of the cache was open a moment ago."""
        if time.monotonic() - self._looked_at >= _FRESH_S:
            self._paths, self._looked_at = _open_paths(), time.monotonic()
        return os.path.realpath(f"{self._root}{name}") in self._paths


def _open_paths() -> set[str]:
    """The paths behind all descriptors that we may see."""
    found = set[str]()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            found.update(_open_by(process / "fd"))
    return found


def _open_by(folder: Path) -> Iterator[str]:
    """The paths behind one process's descriptors; none if it ended, or is another user's."""
    with contextlib.suppress(OSError):
        for one in folder.iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                yield str(one.readlink())
