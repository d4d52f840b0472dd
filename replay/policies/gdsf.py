"""Greedy-Dual-Size-Frequency (Cherkasova, 1998): it favours hits over bytes."""

from __future__ import annotations

from features.common.arrays import BoolArray
from replay.kernels.frequency import Value, least_valuable
from replay.trace import Trace


def gdsf(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Insert, then evict the smallest L + accesses · 1e6 / size, which may be the new file itself.

    L is the key of the last victim; a file of 0 bytes counts as 1. Returns the peak usage in bytes.
    """
    return least_valuable(trace, capacity_bytes, Value(by_size=True, ageing=True, newcomer_may_go=True), hit)
