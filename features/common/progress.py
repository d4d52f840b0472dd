"""The callback for the progress of long work."""

from __future__ import annotations

import threading
from collections.abc import Callable

Advance = Callable[[int, int, str], None]
"""Called with the number of steps done, the number of all steps, and the name of the present one."""


def unwatched(_done: int, _total: int, _present: str) -> None:
    """Ignore progress."""


class Steps:
    """Counts steps that end in any thread, and reports each to `on_progress`, which names all `total`."""

    def __init__(self, total: int, on_progress: Advance) -> None:
        self._total, self._on_progress = total, on_progress
        self._lock, self._done, self._present = threading.Lock(), 0, ""

    def begin(self, present: str, *, done: int = 0) -> None:
        """Name the present step; `done` are over by now."""
        with self._lock:
            self._present, self._done = present, done
            self._on_progress(done, self._total, present)

    def done(self) -> None:
        """One step more is over."""
        with self._lock:
            self._done += 1
            self._on_progress(self._done, self._total, self._present)
