"""How long a kept file may go without a touch."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from features.common.times import DAY_S
from prefetch.target import Held

UNMEASURED_S = 6 * 3600
"""Used if the cache holds only pinned files, or does not list its files."""

MOST_S = 30 * DAY_S
"""However old the oldest file seems: its record may be of a clock that stood at 1970."""


def touch_every_s(held: Iterable[Held], pinned: Collection[str], now_s: float) -> int:
    """Half the LRU age: the age of the longest unused file that nothing keeps in the cache.

    A purge takes the oldest, so a kept file is in danger in the last quarter of that age. Pins are looked at
    each quarter of it at least: one that is older than half would be in the tail at the next look.
    """
    ends = (
        one.last_detach_s
        for one in held
        if one.last_detach_s is not None and not one.is_open and one.name not in pinned
    )
    oldest_s = min(ends, default=None)
    return UNMEASURED_S if oldest_s is None else min(max(1, int(now_s - oldest_s) // 2), MOST_S)
