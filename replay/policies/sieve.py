"""SIEVE (Zhang et al., NSDI 2024): a queue whose hand spares files that were read since it last passed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray
from features.common.jit import bare
from replay.kernels.accesses import AHEAD, Accesses, accesses, fetch
from replay.trace import IndexArray, Trace

# A file's state; READ: since the hand last passed it.
ABSENT, UNREAD, READ = 0, 1, 2


def sieve(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the next unread file that the hand meets, from the oldest to the newest; the peak usage in bytes.

    Files stay in order of arrival. One row of `queue` holds the files ahead of the hand, new files at its
    end; the other row holds the files that the hand has spared. When the hand has passed the newest file,
    the rows swap.
    """
    m = trace.n_items
    queue = np.empty((2, m + 1), np.int32)
    return int(_run(accesses(trace, capacity_bytes, hit), np.zeros(m, np.uint8), queue))


@bare
def _run(reads: Accesses, state: npt.NDArray[np.uint8], queue: IndexArray) -> int:
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
