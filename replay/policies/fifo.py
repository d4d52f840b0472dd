"""First in, first out."""

from __future__ import annotations

from features.common.arrays import BoolArray
from replay.kernels.oldest import oldest_goes
from replay.trace import Trace


def fifo(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the file that came in first until the new one fits. Returns the peak usage in bytes."""
    return oldest_goes(trace, capacity_bytes, hit, by_use=False)
