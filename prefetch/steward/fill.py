"""The bytes that XCache compares with its high watermark, and how many of them arrive between two looks."""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import numpy as np

from features.common.errors import TargetUnavailable
from features.common.times import DAY_S
from features.common.units import format_bytes
from prefetch.xcache.namespace import Counted, counted

_OWN_DISK_SHARE: Final = 0.8
"""Least share of its file systems that a cache has if it has them to itself."""
_BLOCK_BYTES: Final = 512
"""Of `st_blocks`."""
_QUANTILE: Final = 0.99
_HOUR_S: Final = 3600.0
_Answer = TypeVar("_Answer")


class Implausible(TargetUnavailable):
    """A figure of the cache cannot be true, so that nothing is evicted by it."""


class Usage(Protocol):
    """How much of `capacity_bytes` a cache uses."""

    @property
    def capacity_bytes(self) -> int: ...

    def used_bytes(self, held_bytes: int, growing: Iterable[tuple[str, int]]) -> int:
        """Bytes in use. `held_bytes`: by the cache's reports; `growing`: open files, with known bytes."""
        ...

    def counted(self) -> Counted | None:
        """What the cache's server itself has counted last, where it purges by that."""
        ...


class Disks:
    """File systems that the cache has to itself: XCache asks them (`pfc.diskusage LOW HIGH`).

    `folders`: one on each, which stays as long as its file system is mounted; `root`: of the namespace.
    """

    def __init__(self, folders: Sequence[Path], root: Path) -> None:
        self._folders, self._root = {folder: _device(folder) for folder in folders}, root
        self.capacity_bytes = sum(status.f_blocks * status.f_frsize for status in self._statuses())

    def used_bytes(self, held_bytes: int, growing: Iterable[tuple[str, int]]) -> int:
        """What is not available to others than root, as XCache counts.

        Raises Implausible if more than a share of it is not the cache's: then it is no measure of the cache.
        """
        used = sum((one.f_blocks - one.f_bavail) * one.f_frsize for one in self._statuses())
        others = used - held_bytes - _grown(self._root, growing)
        if others > (1 - _OWN_DISK_SHARE) * self.capacity_bytes:
            raise Implausible(
                f"{format_bytes(others)} of {format_bytes(self.capacity_bytes)} on the cache's disks are not "
                "files of the cache: remove them, or set its capacity and watermarks as for a shared disk"
            )
        return used

    def counted(self) -> Counted | None:
        """None: the server counts as this does."""
        return None

    def _statuses(self) -> list[os.statvfs_result]:
        for folder, device in self._folders.items():
            if _device(folder) != device:
                raise TargetUnavailable(f"another file system is mounted at {folder} than at the start")
        return [_asked(os.statvfs, folder) for folder in self._folders]


class Files:
    """A share of a file system: XCache adds up its files (`pfc.diskusage … files BASE NOMINAL MAX`)."""

    def __init__(self, capacity_bytes: int, root: Path) -> None:
        self.capacity_bytes, self._root = capacity_bytes, root

    def used_bytes(self, held_bytes: int, growing: Iterable[tuple[str, int]]) -> int:
        """What is reported, and what open files have grown by since."""
        return held_bytes + _grown(self._root, growing)

    def counted(self) -> Counted | None:
        """What the server itself has counted last; None: it does not say (before 5.8)."""
        return counted(self._root)


def usage(capacity_bytes: int, root: Path, names: Sequence[str]) -> Disks | Files:
    """How the cache whose namespace is `root` counts its `capacity_bytes`; `names`: some of its files.

    With `oss.space` files are links to other file systems, which `names` lead to. Raises TargetUnavailable.
    """
    disks = Disks(_data_folders(root, names), root)
    return disks if capacity_bytes >= _OWN_DISK_SHARE * disks.capacity_bytes else Files(capacity_bytes, root)


class Miscount:
    """Compares what a server has counted with what its disk had meanwhile."""

    def __init__(self) -> None:
        self._last: Counted | None = None
        self._peaks: tuple[int, int] | None = None

    def note(self, counted: Counted | None, used_bytes: int) -> None:
        """Record a look at both. A count is of some time before the look that shows it first."""
        if counted is not None and self._last is not None and counted.at_s != self._last.at_s:
            self._peaks = 0 if self._peaks is None else self._peaks[1], 0
        self._last = counted
        if self._peaks is not None:
            self._peaks = self._peaks[0], max(self._peaks[1], used_bytes)

    @property
    def excess_bytes(self) -> int:
        """The bytes counted that the disk never had; 0 before a third count, as the first may be older than
        the first look.
        """
        if self._last is None or self._peaks is None or not self._peaks[0]:
            return 0
        return max(0, self._last.n_bytes - max(self._peaks))


class Inflow:
    """How many bytes arrive between two looks, by the last day; `look_s`: seconds between looks."""

    def __init__(self, look_s: float) -> None:
        self._look_s = look_s
        self._arrived: deque[int] = deque(maxlen=math.ceil(DAY_S / look_s))
        self._removed: deque[int] = deque(maxlen=math.ceil(_HOUR_S / look_s))
        self._since: tuple[float, int, int] | None = None
        self._last = 0, 0

    def note(self, at_s: float, used_bytes: int, removed_bytes: int) -> None:
        """Record the bytes in use at a look, and those that were removed since the start."""
        total = used_bytes + removed_bytes
        self._last = total, removed_bytes
        if self._since is None:
            self._since = at_s, total, removed_bytes
        elif at_s - self._since[0] >= self._look_s:
            self._arrived.append(max(0, total - self._since[1]))
            self._removed.append(removed_bytes - self._since[2])
            self._since = at_s, total, removed_bytes

    def headroom(self, unmeasured: int) -> int:
        """The 99 % quantile of the bytes that arrive from look to look; `unmeasured` before the first two."""
        return int(np.quantile(self._arrived, _QUANTILE)) if self._arrived else unmeasured

    def balance(self) -> int:
        """Bytes that arrived in the last hour, less those removed in it."""
        n_looks = len(self._removed)
        if self._since is None:
            return 0
        _, total, removed = self._since
        newest = max(0, self._last[0] - total) - (self._last[1] - removed)
        return newest + sum(list(self._arrived)[-n_looks:] if n_looks else ()) - sum(self._removed)


def _asked(ask: Callable[[Path], _Answer], folder: Path) -> _Answer:
    try:
        return ask(folder)
    except OSError as error:
        raise TargetUnavailable(f"cannot see how full {folder} is: {error.strerror}") from error


def _device(folder: Path) -> int:
    return _asked(os.stat, folder).st_dev


def _data_folders(root: Path, names: Sequence[str]) -> list[Path]:
    """Where the file systems are mounted that hold some of the files `names`; `root` if none does."""
    found: dict[int, Path] = {}
    for name in names:
        with contextlib.suppress(OSError):
            path = Path(os.path.realpath(f"{root}{name}"))
            found.setdefault(path.stat().st_dev, path.parent)
    return [_top(folder) for folder in found.values()] or [root]


def _top(folder: Path) -> Path:
    """The highest folder above `folder` on its file system: caches tidy folders away that are empty."""
    device = _device(folder)
    while folder.parent != folder and _device(folder.parent) == device:
        folder = folder.parent
    return folder


def _grown(root: Path, growing: Iterable[tuple[str, int]]) -> int:
    """Bytes that files below `root` have on disk beyond those known."""
    return sum(max(0, _on_disk(f"{root}{name}") - known) for name, known in growing)


def _on_disk(path: str) -> int:
    try:
        return Path(path).stat().st_blocks * _BLOCK_BYTES
    except OSError:
        return 0
