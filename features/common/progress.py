"""The callback for the progress of long work."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int, int, str], None]
"""Called with the number of steps done, the number of all steps, and the name of the present one."""


def unwatched(_done: int, _total: int, _present: str) -> None:
    """Ignore progress."""
