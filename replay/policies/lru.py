"""Least recently used, over whole files."""

from __future__ import annotations

import numpy as np

from replay.kernels.jit import kernel
from replay.kernels.order import Order, append, empty_order, unlink
from replay.planner import BoolArray, IntArray
from replay.trace import ItemArray, Trace


def lru(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the longest unread file until the new one fits. Returns the peak usage in bytes."""
    return int(_lru(trace.item, trace.size_bytes, capacity_bytes, empty_order(trace.n_items), hit))


@kernel
def _lru(item: ItemArray, size: IntArray, capacity: int, order: Order, hit: BoolArray) -> int:
    resident = np.zeros(size.size, np.bool_)
    end = size.size
    used = 0
    peak = 0
    for i in range(item.size):
        file = item[i]
        if resident[file]:
            hit[i] = True
            unlink(order, file)
            append(order, file)
            continue
        need = int(size[file])
        if need > capacity:
            continue
        while used + need > capacity:
            victim = order.newer[end]
            unlink(order, victim)
            resident[victim] = False
            used -= int(size[victim])
        resident[file] = True
        append(order, file)
        used += need
        peak = max(peak, used)
    return peak
