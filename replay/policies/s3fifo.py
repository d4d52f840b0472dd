"""S3-FIFO (Yang et al., SOSP 2023), by bytes: a small queue on trial, a main one, and ghosts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from replay.kernels.accesses import Accesses, accesses
from replay.kernels.ahead import AHEAD, fetch
from replay.kernels.jit import bare
from replay.kernels.ring import COUNT, USED, Ghosts, Ring, empty_ring, haunt, lay, no_ghosts, pop, push
from replay.planner import BoolArray, IntArray
from replay.trace import Trace

SMALL_SHARE, GHOST_SHARE = 0.10, 0.90

# A file's state: 0 if absent, else where it is and, in the last two bits, min(hits there, 3).
_SMALL, _MAIN, _HITS = 4, 8, 3
_HITS_TO_MOVE = 2


class Limits(NamedTuple):
    """Bytes: its two queues, the ghosts."""

    small: int
    main: int
    ghost: int


class Queues(NamedTuple):
    """`state` per file, as above."""

    state: npt.NDArray[np.uint8]
    small: Ring
    main: Ring
    ghosts: Ghosts


def s3fifo(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Two hits in the small queue lead to the main one, as does a second miss soon. Returns the peak.

    Shares and order are those of libCacheSim: see docs/policies.md.
    """
    m = trace.n_items
    small = int(capacity_bytes * SMALL_SHARE)
    limits = Limits(small, capacity_bytes - small, int(capacity_bytes * GHOST_SHARE))
    queues = Queues(np.zeros(m, np.uint8), empty_ring(m), empty_ring(m), no_ghosts(trace.n_accesses, m))
    return int(_run(accesses(trace, capacity_bytes, hit), limits, queues))


@bare
def _run(reads: Accesses, limits: Limits, queues: Queues) -> int:
    item, size, capacity, hit = reads
    n = item.size
    state, small, main, ghosts = queues
    full_once = False
    peak = 0
    for i in range(n):
        file = item[i]
        if i + AHEAD < n:
            fetch(state, item[i + AHEAD])
            fetch(size, item[i + AHEAD])
        if state[file] != 0:
            hit[i] = True
            if state[file] & _HITS < _HITS:
                state[file] += 1
            continue
        need = size[file]
        if need > capacity:
            continue
        to_main = lay(ghosts, file, size)
        if not to_main and need > limits.small:
            continue
        while small.sums[USED] + main.sums[USED] + need > capacity:
            full_once = True
            if main.sums[USED] > limits.main or small.sums[COUNT] == 0:
                _evict_main(queues, size)
            else:
                _evict_small(queues, limits, size)
        if not to_main:
            if need >= limits.small:
                continue
            to_main = not full_once and small.sums[USED] >= limits.small
        push(main if to_main else small, file, need)
        state[file] = _MAIN if to_main else _SMALL
        peak = max(peak, small.sums[USED] + main.sums[USED])
    return peak


@bare
def _evict_small(queues: Queues, limits: Limits, size: IntArray) -> None:
    while queues.small.sums[COUNT] > 0:
        file = pop(queues.small, size)
        if queues.state[file] & _HITS < _HITS_TO_MOVE:
            queues.state[file] = 0
            haunt(queues.ghosts, limits.ghost, file, size)
            return
        push(queues.main, file, size[file])
        queues.state[file] = _MAIN


@bare
def _evict_main(queues: Queues, size: IntArray) -> None:
    while True:
        file = pop(queues.main, size)
        if queues.state[file] & _HITS == 0:
            queues.state[file] = 0
            return
        push(queues.main, file, size[file])
        queues.state[file] -= 1
