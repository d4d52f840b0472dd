"""The bytes that XCache compares with its high watermark, and the part of them that must stay free."""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from features.errors import TargetUnavailable
from features.times import DAY_S

_OWN_DISK_SHARE: Final = 0.8
"""A cache has its file systems to itself if its capacity is at least this share of them."""
_BLOCK_BYTES: Final = 512
"""Of `st_blocks`."""
_QUANTILE: Final = 0.99


class Usage(Protocol):
    """What a cache uses of `capacity_bytes`."""

    @property
    def capacity_bytes(self) -> int: ...

    def used_bytes(self, held_bytes: int, growing: Iterable[tuple[str, int]]) -> int:
        """Bytes in use now. `held_bytes`: by the cache's reports; `growing`: open files, with theirs."""
        ...


class Disks:
    """File systems that the cache has to itself: XCache asks them (`pfc.diskusage LOW HIGH`)."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self.capacity_bytes = sum(status.f_blocks * status.f_frsize for status in _statuses(folders))

    def used_bytes(self, held_bytes: int, growing: Iterable[tuple[str, int]]) -> int:
        """What is not available to others than root, as XCache counts."""
        return sum((one.f_blocks - one.f_bavail) * one.f_frsize for one in _statuses(self._folders))


class Files:
    """A share of a file system: XCache adds up its files (`pfc.diskusage … files BASE NOMINAL MAX`)."""

    def __init__(self, capacity_bytes: int, root: Path) -> None:
        self.capacity_bytes, self._root = capacity_bytes, root

    def used_bytes(self, held_bytes: int, growing: Iterable[tuple[str, int]]) -> int:
        """What is reported, and what open files have grown by since."""
        return held_bytes + sum(max(0, _on_disk(f"{self._root}{name}") - known) for name, known in growing)


def usage(capacity_bytes: int, root: Path, names: Sequence[str]) -> Disks | Files:
    """How the cache whose namespace is `root` counts its `capacity_bytes`; `names`: some of its files.

    With `oss.space` files are links to other file systems, which `names` lead to. Raises TargetUnavailable.
    """
    disks = Disks(_data_folders(root, names))
    return disks if capacity_bytes >= _OWN_DISK_SHARE * disks.capacity_bytes else Files(capacity_bytes, root)


class Inflow:
    """How many bytes come in between two looks, by those of the last day; `look_s`: seconds between looks."""

    def __init__(self, look_s: float) -> None:
        self._look_s = look_s
        self._arrived: deque[int] = deque(maxlen=math.ceil(DAY_S / look_s))
        self._since: tuple[float, int] | None = None

    def note(self, at_s: float, used_bytes: int, removed_bytes: int) -> None:
        """Note the usage at a look, and how many bytes were removed until then."""
        total = used_bytes + removed_bytes
        if self._since is None:
            self._since = at_s, total
        elif at_s - self._since[0] >= self._look_s:
            self._arrived.append(max(0, total - self._since[1]))
            self._since = at_s, total

    def headroom(self, unmeasured: int) -> int:
        """What hardly ever is exceeded from look to look; `unmeasured` before the first two."""
        return int(np.quantile(self._arrived, _QUANTILE)) if self._arrived else unmeasured


def _statuses(folders: Sequence[Path]) -> Iterable[os.statvfs_result]:
    try:
        return [os.statvfs(folder) for folder in folders]
    except OSError as error:
        raise TargetUnavailable(f"cannot see how full {error.filename} is: {error.strerror}") from error


def _data_folders(root: Path, names: Sequence[str]) -> list[Path]:
    """A folder on each file system that holds some of the files `names`; `root` if none does."""
    found: dict[int, Path] = {}
    for name in names:
        with contextlib.suppress(OSError):
            path = Path(os.path.realpath(f"{root}{name}"))
            found.setdefault(path.stat().st_dev, path.parent)
    return list(found.values()) or [root]


def _on_disk(path: str) -> int:
    try:
        return Path(path).stat().st_blocks * _BLOCK_BYTES
    except OSError:
        return 0
