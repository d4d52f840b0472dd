"""The callback for the progress of long work."""

import threading
from collections.abc import Callable

Advance = Callable[[int, int, str], None]
"""Called with the number of steps done, the number of all steps, and the name of the present one."""


def unwatched(_done: int, _total: int, _present: str) -> None:
    """Ignore progress."""


class Steps:
    """Counts `total` steps called `name` that end in any thread; reports the beginning and each end."""

    def __init__(self, total: int, name: str, on_progress: Advance) -> None:
        self._total, self._name, self._on_progress = total, name, on_progress
        self._lock, self._done = threading.Lock(), 0
        on_progress(0, total, name)

    def done(self) -> None:
        """One step more is over."""
        with self._lock:
            self._done += 1
            self._on_progress(self._done, self._total, self._name)
