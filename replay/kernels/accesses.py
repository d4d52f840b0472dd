"""What every policy's loop reads and writes."""

from __future__ import annotations

from typing import NamedTuple

from features.common.arrays import BoolArray, IntArray
from replay.trace import ItemArray, Trace


class Accesses(NamedTuple):
    """File ids in time order, sizes per id, the capacity in bytes, and the array where hits are marked."""

    item: ItemArray
    size: IntArray
    capacity: int
    hit: BoolArray


def accesses(trace: Trace, capacity_bytes: int, hit: BoolArray) -> Accesses:
    """The accesses of `trace`, for a cache of `capacity_bytes`."""
    return Accesses(trace.item, trace.size_bytes, capacity_bytes, hit)
