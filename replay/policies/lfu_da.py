"""LFU with dynamic ageing (Arlitt et al., 2000): a formerly popular file does not stay forever."""

from __future__ import annotations

from features.common.arrays import BoolArray
from replay.kernels.frequency import Value, least_valuable
from replay.trace import Trace


def lfu_da(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the smallest L + accesses since the file came in; L is the key of the last victim.

    Returns the peak usage in bytes.
    """
    return least_valuable(
        trace, capacity_bytes, Value(by_size=False, ageing=True, newcomer_may_go=False), hit
    )
