"""2Q, the full version (Johnson and Shasha, VLDB 1994), by bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from replay.kernels.accesses import Accesses, accesses
from replay.kernels.ahead import AHEAD, fetch
from replay.kernels.jit import bare
from replay.kernels.ring import COUNT, USED, Ghosts, Ring, empty_ring, haunt, lay, no_ghosts, pop, push
from replay.planner import BoolArray
from replay.trace import IndexArray, Trace

# The paper's choice for Kin and Kout, of bytes instead of pages.
IN_SHARE, OUT_SHARE = 0.25, 0.50

_IN, _MAIN = 1, 2


class Limits(NamedTuple):
    """Bytes: A1in, and the ghosts of A1out."""

    arrivals: int
    ghost: int


class Queues(NamedTuple):
    """`state` per file: 0, _IN or _MAIN; `last`: the index of its last access, for Am's files."""

    state: npt.NDArray[np.uint8]
    last: IndexArray
    arrivals: Ring
    ghosts: Ghosts


def two_queues(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """New files pass a FIFO of 25 %; those asked for again soon after go to an LRU. Returns the peak.

    A hit in the FIFO changes nothing. Room is made from the FIFO while it holds more than its share, or if
    the LRU is empty, else from the LRU; only what leaves the FIFO is remembered.
    """
    m = trace.n_items
    limits = Limits(int(capacity_bytes * IN_SHARE), int(capacity_bytes * OUT_SHARE))
    queues = Queues(
        np.zeros(m, np.uint8), np.empty(m, np.int32), empty_ring(m), no_ghosts(trace.n_accesses, m)
    )
    return int(_run(accesses(trace, capacity_bytes, hit), limits, queues))


@bare
def _run(reads: Accesses, limits: Limits, queues: Queues) -> int:
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
        if state[file] != 0:
            hit[i] = True
            last[file] = i
            continue
        need = size[file]
        if need > capacity:
            continue
        to_main = lay(ghosts, file, size)
        while arrivals.sums[USED] + main_used + need > capacity:
            if arrivals.sums[COUNT] > 0 and (arrivals.sums[USED] > limits.arrivals or main_used == 0):
                victim = pop(arrivals, size)
                haunt(ghosts, limits.ghost, victim, size)
                state[victim] = 0
                continue
            # As in `kernels.oldest`, the trace is the queue of the LRU.
            victim = int(item[tail])
            if state[victim] == _MAIN and last[victim] == tail:
                state[victim] = 0
                main_used -= size[victim]
            tail += 1
        last[file] = i
        if to_main:
            state[file] = _MAIN
            main_used += need
        else:
            state[file] = _IN
            push(arrivals, file, need)
        peak = max(peak, arrivals.sums[USED] + main_used)
    return peak
