"""The bytes that XCache compares with its high watermark, and how many of them arrive between two looks."""

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np

from features.common.errors import TargetUnavailable
from features.common.times import DAY_S, HOUR_S
from features.common.units import format_bytes
from prefetch.xcache.cinfo import BYTES_PER_BLOCK
from prefetch.xcache.namespace import ServerCount, server_count

OWN_DISK_SHARE: Final = 0.8
"""Least share of its file systems that a cache has if it has them to itself, and of its capacity that these
have.
"""
_QUANTILE: Final = 0.99
_SETTLED_S: Final = 60.0
"""Within so many seconds what has arrived is reported, and what was removed is free."""
_Answer = TypeVar("_Answer")


class Implausible(TargetUnavailable):
    """A figure of the cache cannot be true, so that nothing is evicted by it."""


class DataDisks:
    """How much of `capacity_bytes`, as declared or found, a cache with the namespace `root` uses.

    If the cache has its file systems to itself, XCache asks these (`pfc.diskusage LOW HIGH`); of a share of
    one it adds up the files (`… files BASE NOMINAL MAX`). Which of both depends on where its files lie: with
    `oss.space` they are links into `spaces`, on other file systems. So until `look` has found a file, files
    are added up; file systems found later are added.

    `others_bytes`: of what was in use at the last measure, those of no file that the cache has, as far as
    they count; `measures`: how often what is measured has changed.
    """

    def __init__(self, capacity_bytes: int, root: Path, spaces: Sequence[Path] = ()) -> None:
        self.capacity_bytes, self.others_bytes, self.measures = capacity_bytes, 0, 0
        self._declared, self._root, self._spaces = capacity_bytes, root, spaces
        # A folder on each file system, which stays as long as that is mounted.
        self._folders, self._most_bytes, self._has_them_alone = dict[int, Path](), 0, False

    def look(self, names: Iterable[str]) -> None:
        """See on which file systems the files called `names` lie.

        Raises TargetUnavailable, and Implausible if there is too little of them for what was declared.
        """
        for device, folder in self._folders.items():
            if _device(folder) != device:
                raise TargetUnavailable(
                    f"another file system is mounted at {folder} than at the start: mount that one, or "
                    "restart the steward"
                )
        folders = _folders_of(self._root, names) | self._folders
        if folders.keys() != self._folders.keys():
            there, declared = _size_bytes(folders.values()), self._declared
            everywhere = {_device(space): space for space in self._spaces} | folders
            self._most_bytes = _size_bytes(everywhere.values())
            self._has_them_alone = OWN_DISK_SHARE * there <= declared and there >= OWN_DISK_SHARE * declared
            self.capacity_bytes, self.others_bytes = there if self._has_them_alone else declared, 0
            self._folders, self.measures = folders, self.measures + 1
        if self._folders and self._most_bytes < OWN_DISK_SHARE * self._declared:
            where = ", ".join(sorted(map(str, {*self._folders.values(), *self._spaces})))
            raise Implausible(
                f"its capacity is set to {format_bytes(self._declared)}, and the file systems of its files "
                f"({where}) have {format_bytes(self._most_bytes)}; nothing is evicted: correct the "
                "capacity, or mount the disk that is missing"
            )

    def used_bytes(self, held_bytes: int, growing: Iterable[tuple[str, int]]) -> int:
        """Bytes in use: those not available to others than root, as XCache counts; or `held_bytes` by the
        cache's reports, and what the open files `growing` have grown by since, from their known bytes.

        Raises TargetUnavailable.
        """
        grown = sum(max(0, _on_disk(f"{self._root}{name}") - known) for name, known in growing)
        of_files = held_bytes + grown
        if not self._has_them_alone:
            return of_files
        statuses = [_asked(os.statvfs, folder) for folder in self._folders.values()]
        used = sum((status.f_blocks - status.f_bavail) * status.f_frsize for status in statuses)
        self.others_bytes = used - of_files
        return used

    def server_count(self) -> ServerCount | None:
        """What the server has counted last; None: it counts as this does, or does not say (before 5.8)."""
        return None if self._has_them_alone else server_count(self._root)


class Miscount:
    """Compares what a server has counted with what its disk had meanwhile."""

    def __init__(self) -> None:
        self._last: ServerCount | None = None
        self._peaks: tuple[int, int] | None = None

    def note(self, counted: ServerCount | None, used_bytes: int) -> None:
        """Record a look at both. A count is of some time before the look that shows it first."""
        if counted is not None and self._last is not None and counted.at_s != self._last.at_s:
            self._peaks = 0 if self._peaks is None else self._peaks[1], 0
        self._last = counted
        if self._peaks is not None:
            self._peaks = self._peaks[0], max(self._peaks[1], used_bytes)

    @property
    def excess_bytes(self) -> int:
        """The bytes counted that the disk never had; 0 before the third count."""
        if self._last is None or self._peaks is None or not self._peaks[0]:
            return 0
        return max(0, self._last.n_bytes - max(self._peaks))


class _Look(NamedTuple):
    """A look at the disk: bytes in use, in all and in the cache's files, each with those removed."""

    at_s: float
    in_use: int
    in_files: int
    removed: int

    @property
    def others(self) -> int:
        return self.in_use - self.in_files


class Inflow:
    """How many bytes arrive between two looks, by the last day; `look_s`: seconds between looks.

    What arrived is known twice: by what is in use, and by the cache's files. The lesser counts: bytes that
    were evicted and are not free yet did not arrive.
    """

    def __init__(self, look_s: float) -> None:
        self._look_s = look_s
        self._arrived: deque[tuple[int, int]] = deque(maxlen=math.ceil(DAY_S / look_s))
        self._hour: deque[_Look] = deque(maxlen=math.ceil(HOUR_S / look_s) + 1)
        self._last = _Look(0.0, 0, 0, 0)
        self._settling = deque[_Look]()

    def note(self, at_s: float, used_bytes: int, removed_bytes: int, others_bytes: int = 0) -> None:
        """Record the bytes in use at a look, those removed since the start, and those in use that are of no
        file of the cache.
        """
        total = used_bytes + removed_bytes
        self._last = _Look(at_s, total, total - others_bytes, removed_bytes)
        self._settling.append(self._last)
        while at_s - self._settling[0].at_s > _SETTLED_S:
            self._settling.popleft()
        if self._hour and at_s - self._hour[-1].at_s < self._look_s:
            return
        if self._hour:
            self._arrived.append(self._came_since(self._hour[-1]))
        self._hour.append(self._last)

    def headroom(self, unmeasured: int) -> int:
        """The 99 % quantile of the bytes that arrive from look to look; `unmeasured` before the first two."""
        return int(np.quantile(self._arrived, _QUANTILE, axis=0).min()) if self._arrived else unmeasured

    def balance(self) -> int:
        if not self._hour:
            return 0
        looks = list(self._arrived)[-len(self._hour) + 1 :] if len(self._hour) > 1 else []
        arrived: Iterator[int] = (
            sum(column) for column in zip(*looks, self._came_since(self._hour[-1]), strict=True)
        )
        return min(arrived) - self.removed_bytes

    @property
    def removed_bytes(self) -> int:
        return self._last.removed - self._hour[0].removed if self._hour else 0

    @property
    def unfreed_bytes(self) -> int:
        """Of what was removed in the last hour, about so many bytes are still in use, as for a minute.

        What arrives is in use before it is reported, but not for so long.
        """
        now = min((look.others for look in self._settling), default=0)
        least = min((look.others for look in self._hour), default=0)
        return min(max(0, now - least), self.removed_bytes)

    @property
    def being_freed_bytes(self) -> int:
        """Of what was removed in the last minute, at most so many bytes are still in use."""
        first = self._settling[0] if self._settling else self._last
        return min(max(0, self._last.others - first.others), self._last.removed - first.removed)

    def _came_since(self, look: _Look) -> tuple[int, int]:
        return max(0, self._last.in_use - look.in_use), max(0, self._last.in_files - look.in_files)


def _asked(ask: Callable[[Path], _Answer], folder: Path) -> _Answer:
    try:
        return ask(folder)
    except OSError as error:
        raise TargetUnavailable(f"cannot see how full {folder} is: {error.strerror}") from error


def _size_bytes(folders: Iterable[Path]) -> int:
    statuses = [_asked(os.statvfs, folder) for folder in folders]
    return sum(status.f_blocks * status.f_frsize for status in statuses)


def _device(folder: Path) -> int:
    return _asked(os.stat, folder).st_dev


def _folders_of(root: Path, names: Iterable[str]) -> dict[int, Path]:
    """The top of each file system that holds some of the files `names` below `root`, by device."""
    folders = dict[int, Path]()
    for name in names:
        with contextlib.suppress(OSError):
            path = f"{root}{name}"
            if os.stat(path).st_dev not in folders:  # noqa: PTH116  of each file, at each look
                target = Path(os.path.realpath(path))  # a link may point elsewhere by now
                folders[target.stat().st_dev] = _top(target.parent)
    return folders


def _top(folder: Path) -> Path:
    """The highest folder above `folder` on its file system: caches tidy folders away that are empty."""
    device = _device(folder)
    while folder.parent != folder and _device(folder.parent) == device:
        folder = folder.parent
    return folder


def _on_disk(path: str) -> int:
    try:
        return Path(path).stat().st_blocks * BYTES_PER_BLOCK
    except OSError:
        return 0
