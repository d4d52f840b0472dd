"""Least recently used."""

from __future__ import annotations

from features.common.arrays import BoolArray
from replay.kernels.oldest import oldest_goes
from replay.trace import Trace


def lru(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the longest unread file until the new one fits. Returns the peak usage in bytes."""
    return oldest_goes(trace, capacity_bytes, hit, by_use=True)
