"""Least frequently used."""

from __future__ import annotations

from features.common.arrays import BoolArray
from replay.kernels.frequency import Value, least_valuable
from replay.trace import Trace


def lfu(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the file with the fewest accesses since it came in, on a tie the least recently used.

    Returns the peak usage in bytes.
    """
    return least_valuable(
        trace, capacity_bytes, Value(by_size=False, ageing=False, newcomer_may_go=False), hit
    )
