"""LRU and FIFO in one loop: the trace itself is the queue.

Each file stores the index of the access that placed it in the queue: the last one (LRU), or the one that
brought it in (FIFO). The tail moves along the trace and evicts. A file is in the cache if its index is not
behind the tail, so no list has to be updated.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from features.common.arrays import BoolArray
from features.common.jit import bare
from replay.kernels.accesses import AHEAD, Accesses, accesses, fetch
from replay.trace import IndexArray, Trace


def oldest_goes(by_use: bool, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the file that was read (`by_use`) or brought in longest ago. Returns the peak usage in bytes."""
    placed = np.full(trace.n_items, -1, np.int32)
    return int(_run(accesses(trace, capacity_bytes, hit), by_use, placed))


@bare
def _run(reads: Accesses, by_use: bool, placed: IndexArray) -> int:
    item, size, capacity, hit = reads
    n = item.size
    tail = 0
    used = 0
    peak = 0
    for i in range(n):
        file = item[i]
        if i + AHEAD < n:
            fetch(placed, item[i + AHEAD])
            fetch(size, item[i + AHEAD])
        need = size[file]
        if need > capacity:
            continue
        # Conditional values are faster than branches here and below, since hits are unpredictable.
        present = placed[file] >= tail
        hit[i] = present
        if by_use:
            placed[file] = i
        else:
            placed[file] = placed[file] if present else i
        used += 0 if present else need
        while used > capacity:
            oldest = item[tail]
            ahead = item[min(tail + AHEAD, n - 1)]
            fetch(placed, ahead)
            fetch(size, ahead)
            used -= size[oldest] if placed[oldest] == tail else 0
            tail += 1
        peak = max(peak, used)
    return peak


lru = partial(oldest_goes, True)
"""Least recently used: evict the longest unread file until the new one fits."""
fifo = partial(oldest_goes, False)
"""First in, first out: evict the file that came in first until the new one fits."""
