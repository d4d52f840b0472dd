"""The callback for the progress of long work."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int, int, str], None]
"""Called with (done, total, name of the last step)."""


def unwatched(_done: int, _total: int, _last: str) -> None:
    """Ignore progress."""
