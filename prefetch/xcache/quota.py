"""How many bytes of captures a folder may hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_MEASURED_EVERY_S: Final = 1.0


class Quota:
    """The bytes of the captures in `folder`, which are to stay within `quota_bytes`.

    What is added is counted as it comes; what others delete is seen by `measure`, which a full folder calls
    for itself, at most once a second. `clock`: s, as `time.monotonic` gives them.
    """

    def __init__(
        self, folder: Path, quota_bytes: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.quota_bytes = quota_bytes
        self.held_bytes = 0
        self.folder = folder
        self._clock = clock
        self.measure()

    def measure(self) -> None:
        """Look how much there is."""
        self.held_bytes = held_bytes(self.folder)
        self._measured_s = self._clock()

    def admits(self, n_bytes: int) -> bool:
        """Whether `n_bytes` more fit; they then count as held."""
        if self._is_over(n_bytes) and self._clock() - self._measured_s >= _MEASURED_EVERY_S:
            self.measure()
        if self._is_over(n_bytes):
            return False
        self.held_bytes += n_bytes
        return True

    def _is_over(self, n_bytes: int) -> bool:
        return self.held_bytes + n_bytes > self.quota_bytes


def held_bytes(folder: Path) -> int:
    """The bytes of all captures in `folder`, also of one being written."""
    return sum(map(_size_bytes, folder.glob("gstream-*.capture*")))


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # archived since it was listed
        return 0
