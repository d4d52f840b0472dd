"""How long work reports its progress to whoever watches."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int, int, str], None]
"""Called with (done, total, what was done last)."""


def unwatched(_done: int, _total: int, _last: str) -> None:
    """Progress that nobody watches."""
