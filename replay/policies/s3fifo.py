"""S3-FIFO (Yang et al., SOSP 2023), by bytes: a small queue for new files, a main queue, and ghosts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray, IntArray
from features.common.jit import bare
from replay.kernels.accesses import AHEAD, Accesses, accesses, fetch
from replay.kernels.ring import COUNT, USED, Ghosts, Ring, empty_ring, forget, no_ghosts, pop, push, remember
from replay.trace import Trace

SMALL_SHARE, GHOST_SHARE = 0.10, 0.90

# A file's state is one byte: ABSENT, or IN_SMALL or IN_MAIN plus its hits in that queue, at most MOST_HITS.
ABSENT, IN_SMALL, IN_MAIN = 0, 4, 8
MOST_HITS = 3
HITS_TO_MOVE = 2


class QueueBytes(NamedTuple):
    """The most bytes of the small queue, the main queue and the ghosts."""

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
    """Files with two hits in the small queue move to the main one; so do ghosts that miss. The peak usage.

    Shares and order are those of libCacheSim; see docs/policies.md.
    """
    m = trace.n_items
    small = int(capacity_bytes * SMALL_SHARE)
    limits = QueueBytes(small, capacity_bytes - small, int(capacity_bytes * GHOST_SHARE))
    queues = Queues(np.zeros(m, np.uint8), empty_ring(m), empty_ring(m), no_ghosts(trace.n_accesses, m))
    return int(_run(accesses(trace, capacity_bytes, hit), limits, queues))


@bare
def _run(reads: Accesses, limits: QueueBytes, queues: Queues) -> int:
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
        if state[file] != ABSENT:
            hit[i] = True
            if _hits(state, file) < MOST_HITS:
                state[file] += 1
            continue
        need = size[file]
        if need > capacity:
            continue
        to_main = forget(ghosts, file, size)
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
        state[file] = IN_MAIN if to_main else IN_SMALL
        peak = max(peak, small.sums[USED] + main.sums[USED])
    return peak


@bare
def _hits(state: npt.NDArray[np.uint8], file: int) -> int:
    """Hits of a resident file in its queue."""
    return int(state[file] & MOST_HITS)


@bare
def _evict_small(queues: Queues, limits: QueueBytes, size: IntArray) -> None:
    while queues.small.sums[COUNT] > 0:
        file = pop(queues.small, size)
        if _hits(queues.state, file) < HITS_TO_MOVE:
            queues.state[file] = ABSENT
            remember(queues.ghosts, limits.ghost, file, size)
            return
        push(queues.main, file, size[file])
        queues.state[file] = IN_MAIN


@bare
def _evict_main(queues: Queues, size: IntArray) -> None:
    while True:
        file = pop(queues.main, size)
        if _hits(queues.state, file) == 0:
            queues.state[file] = ABSENT
            return
        push(queues.main, file, size[file])
        queues.state[file] -= 1
