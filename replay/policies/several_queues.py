"""Policies of several queues, by bytes: S3-FIFO (Yang et al., SOSP 2023) and 2Q (Johnson and Shasha, 1994).

Their queues are rings of resident files, and ghosts: names of files that were evicted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray, IntArray
from features.common.jit import bare
from replay.kernels.accesses import AHEAD, Accesses, accesses, fetch
from replay.kernels.heuristics import GHOST_SHARE, HITS_TO_MOVE, MOST_HITS, SMALL_SHARE
from replay.trace import IndexArray, Trace

# Entries of Ring.sums and Ghosts.sums.
FIRST, COUNT, USED = range(3)


class Ring(NamedTuple):
    """Files in order of arrival, each at most once; `sums`: slot of the oldest, files, bytes."""

    slot: IndexArray
    sums: IntArray


def empty_ring(m: int) -> Ring:
    """Room for `m` files."""
    return Ring(np.empty(m, np.int32), np.zeros(3, np.int64))


@bare
def push(ring: Ring, file: int, size_bytes: int) -> None:
    """Add `file` as the newest."""
    at = ring.sums[FIRST] + ring.sums[COUNT]
    if at >= ring.slot.size:
        at -= ring.slot.size
    ring.slot[at] = file
    ring.sums[COUNT] += 1
    ring.sums[USED] += size_bytes


@bare
def pop(ring: Ring, size: IntArray) -> int:
    """Take out the oldest file."""
    first = ring.sums[FIRST]
    file = ring.slot[first]
    ring.sums[FIRST] = first + 1 if first + 1 < ring.slot.size else 0
    ring.sums[COUNT] -= 1
    ring.sums[USED] -= size[file]
    return int(file)


class Ghosts(NamedTuple):
    """Files that were evicted, oldest first, counted with their bytes.

    `entry[FIRST … FIRST + COUNT - 1]` are files. An entry counts if `at[file]` is its place; `at` is -1 for
    files without a ghost. There are never more entries than accesses, so `entry` does not wrap around.
    """

    entry: IndexArray
    at: IndexArray
    sums: IntArray


def no_ghosts(n: int, m: int) -> Ghosts:
    """Room for the ghosts of a trace of `n` accesses to `m` files; memory is used only as they come."""
    return Ghosts(np.empty(n, np.int32), np.full(m, -1, np.int32), np.zeros(3, np.int64))


@bare
def remember(ghosts: Ghosts, limit: int, file: int, size: IntArray) -> None:
    """Add a ghost of `file`, dropping the oldest ones while all would take more than `limit` bytes."""
    need = size[file]
    if need > limit:
        return
    first, used = ghosts.sums[FIRST], ghosts.sums[USED] + need
    end = first + ghosts.sums[COUNT]
    while used > limit:
        oldest = ghosts.entry[first]
        if ghosts.at[oldest] == first:
            ghosts.at[oldest] = -1
            used -= size[oldest]
        first += 1
    ghosts.entry[end] = file
    ghosts.at[file] = end
    ghosts.sums[FIRST], ghosts.sums[COUNT], ghosts.sums[USED] = first, end + 1 - first, used


@bare
def forget(ghosts: Ghosts, file: int, size: IntArray) -> bool:
    """Drop the ghost of `file`; returns whether there was one."""
    if ghosts.at[file] < 0:
        return False
    ghosts.at[file] = -1
    ghosts.sums[USED] -= size[file]
    return True


# A file's state is one byte: ABSENT, or IN_SMALL or IN_MAIN plus its hits in that queue, at most MOST_HITS.
ABSENT, IN_SMALL, IN_MAIN = 0, 4, 8


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
    return int(_s3fifo(accesses(trace, capacity_bytes, hit), limits, queues))


@bare
def _s3fifo(reads: Accesses, limits: QueueBytes, queues: Queues) -> int:
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


# The paper's choice of Kin and Kout, as shares of bytes instead of pages.
IN_SHARE, OUT_SHARE = 0.25, 0.50

# A file's state, if it is not ABSENT.
ARRIVED, IN_LRU = 1, 2


class TwoQueueBytes(NamedTuple):
    """The most bytes of arrivals (the paper's A1in) and of ghosts (A1out)."""

    arrivals: int
    ghost: int


class TwoQueues(NamedTuple):
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
    limits = TwoQueueBytes(int(capacity_bytes * IN_SHARE), int(capacity_bytes * OUT_SHARE))
    queues = TwoQueues(
        np.zeros(m, np.uint8), np.empty(m, np.int32), empty_ring(m), no_ghosts(trace.n_accesses, m)
    )
    return int(_two_queues(accesses(trace, capacity_bytes, hit), limits, queues))


@bare
def _two_queues(reads: Accesses, limits: TwoQueueBytes, queues: TwoQueues) -> int:
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
            if state[victim] == IN_LRU and last[victim] == tail:
                state[victim] = ABSENT
                main_used -= size[victim]
            tail += 1
        last[file] = i
        if to_main:
            state[file] = IN_LRU
            main_used += need
        else:
            state[file] = ARRIVED
            push(arrivals, file, need)
        peak = max(peak, arrivals.sums[USED] + main_used)
    return peak
