"""Policies of one queue: LRU and FIFO, whose queue is the trace itself, and SIEVE.

LRU and FIFO are one loop. Each file stores the index of the access that placed it in the
queue: the last one (LRU), or the one that brought it in (FIFO). The tail moves along the trace and evicts. A
file is in the cache if its index is not behind the tail, so no list has to be updated.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray
from features.common.jit import bare
from replay.kernels.accesses import AHEAD, Accesses, accesses, fetch
from replay.trace import IndexArray, Trace


def oldest_goes(by_use: bool, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the file that was read (`by_use`) or brought in longest ago. Returns the peak usage in bytes."""
    placed = np.full(trace.n_items, -1, np.int32)
    return int(_oldest_goes(accesses(trace, capacity_bytes, hit), by_use, placed))


@bare
def _oldest_goes(reads: Accesses, by_use: bool, placed: IndexArray) -> int:
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


# A file's state; READ: since the hand last passed it.
ABSENT, UNREAD, READ = range(3)


def sieve(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the next unread file that the hand meets, from the oldest to the newest; the peak usage in bytes.

    Files stay in order of arrival. One row of `queue` holds the files ahead of the hand, new files at its
    end; the other row holds the files that the hand has spared. When the hand has passed the newest file,
    the rows swap.
    """
    m = trace.n_items
    queue = np.empty((2, m + 1), np.int32)
    return int(_sieve(accesses(trace, capacity_bytes, hit), np.zeros(m, np.uint8), queue))


@bare
def _sieve(reads: Accesses, state: npt.NDArray[np.uint8], queue: IndexArray) -> int:
    item, size, capacity, hit = reads
    n = item.size
    slots = queue.shape[1]
    row = 0
    hand = 0
    end = 0
    n_spared = 0
    used = 0
    peak = 0
    for i in range(n):
        file = item[i]
        if i + AHEAD < n:
            fetch(state, item[i + AHEAD])
            fetch(size, item[i + AHEAD])
        if state[file] != ABSENT:
            state[file] = READ
            hit[i] = True
            continue
        need = size[file]
        if need > capacity:
            continue
        used += need
        while used > capacity:
            met = queue[row, hand]
            hand = hand + 1 if hand + 1 < slots else 0
            if state[met] == READ:
                state[met] = UNREAD
                queue[1 - row, n_spared] = met
                n_spared += 1
            else:
                state[met] = ABSENT
                used -= size[met]
            if hand == end:
                row = 1 - row
                hand, end, n_spared = 0, n_spared, 0
        state[file] = UNREAD
        queue[row, end] = file
        end = end + 1 if end + 1 < slots else 0
        peak = max(peak, used)
    return peak
