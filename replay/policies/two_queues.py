"""2Q, the full version (Johnson and Shasha, VLDB 1994), by bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray
from features.common.jit import bare
from replay.kernels.accesses import AHEAD, Accesses, accesses, fetch
from replay.kernels.ring import COUNT, USED, Ghosts, Ring, empty_ring, forget, no_ghosts, pop, push, remember
from replay.trace import IndexArray, Trace

# The paper's choice of Kin and Kout, as shares of bytes instead of pages.
IN_SHARE, OUT_SHARE = 0.25, 0.50

# A file's state.
ABSENT, ARRIVED, IN_MAIN = 0, 1, 2


class QueueBytes(NamedTuple):
    """The most bytes of arrivals (the paper's A1in) and of ghosts (A1out)."""

    arrivals: int
    ghost: int


class Queues(NamedTuple):
    """`state` per file; `last`: the index of its last access, for files of the LRU (the paper's Am)."""

    state: npt.NDArray[np.uint8]
    last: IndexArray
    arrivals: Ring
    ghosts: Ghosts


def two_queues(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """New files pass through a FIFO of 25 %; those read again soon after go to an LRU. The peak in bytes.

    A hit in the FIFO changes nothing. Files are evicted from the FIFO while it holds more than its share or
    the LRU is empty, else from the LRU. Only files that leave the FIFO become ghosts.
    """
    m = trace.n_items
    limits = QueueBytes(int(capacity_bytes * IN_SHARE), int(capacity_bytes * OUT_SHARE))
    queues = Queues(
        np.zeros(m, np.uint8), np.empty(m, np.int32), empty_ring(m), no_ghosts(trace.n_accesses, m)
    )
    return int(_run(accesses(trace, capacity_bytes, hit), limits, queues))


@bare
def _run(reads: Accesses, limits: QueueBytes, queues: Queues) -> int:
    item, size, capacity, hit = reads
    n = item.size
    state, last, arrivals, ghosts = queues
    tail = 0
    main_used = 0
    peak = 0
    for i in range(n):
        file = item[i]
        if i + AHEAD < n:
            fetch(state, item[i + AHEAD])
            fetch(size, item[i + AHEAD])
        if state[file] != ABSENT:
            hit[i] = True
            last[file] = i
            continue
        need = size[file]
        if need > capacity:
            continue
        to_main = forget(ghosts, file, size)
        while arrivals.sums[USED] + main_used + need > capacity:
            if arrivals.sums[COUNT] > 0 and (arrivals.sums[USED] > limits.arrivals or main_used == 0):
                victim = pop(arrivals, size)
                remember(ghosts, limits.ghost, victim, size)
                state[victim] = ABSENT
                continue
            # As in `kernels.oldest`, the trace is the queue of the LRU.
            victim = int(item[tail])
            if state[victim] == IN_MAIN and last[victim] == tail:
                state[victim] = ABSENT
                main_used -= size[victim]
            tail += 1
        last[file] = i
        if to_main:
            state[file] = IN_MAIN
            main_used += need
        else:
            state[file] = ARRIVED
            push(arrivals, file, need)
        peak = max(peak, arrivals.sums[USED] + main_used)
    return peak
