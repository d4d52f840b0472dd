"""SIEVE (Zhang et al., NSDI 2024): a queue whose hand spares, once, what was read since it last came by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from replay.kernels.accesses import Accesses, accesses
from replay.kernels.ahead import AHEAD, fetch
from replay.kernels.jit import bare
from replay.planner import BoolArray
from replay.trace import IndexArray, Trace

_IN, _READ = 1, 2


def sieve(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict what the hand meets unread, going from the oldest to the newest. Returns the peak in bytes.

    Files stay in order of arrival. Those ahead of the hand, with the new ones at their end, are in one row of
    `queue`, those it has spared in the other; where the hand has passed the newest the rows change places.
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
        if state[file] != 0:
            state[file] = _READ
            hit[i] = True
            continue
        need = size[file]
        if need > capacity:
            continue
        used += need
        while used > capacity:
            met = queue[row, hand]
            hand = hand + 1 if hand + 1 < slots else 0
            if state[met] == _READ:
                state[met] = _IN
                queue[1 - row, n_spared] = met
                n_spared += 1
            else:
                state[met] = 0
                used -= size[met]
            if hand == end:
                row = 1 - row
                hand, end, n_spared = 0, n_spared, 0
        state[file] = _IN
        queue[row, end] = file
        end = end + 1 if end + 1 < slots else 0
        peak = max(peak, used)
    return peak
