"""Policies of one queue (LRU, FIFO, SIEVE) and of several: S3-FIFO (Yang et al., SOSP 2023), 2Q; by bytes.

LRU and FIFO are one loop, and their queue is the trace itself. Each file stores the index of the access that
placed it in the queue: the last one (LRU), or the one that brought it in (FIFO). The tail moves along the
trace and evicts. A file is in the cache if its index is not behind the tail, so no list has to be updated.
The queues of S3-FIFO and 2Q (Johnson and Shasha, 1994) are rings of resident files, and ghosts: names of
files that were evicted.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray, IntArray
from features.common.jit import bare, inner
from replay.kernels.accesses import AHEAD, Accesses, accesses, fetch
from replay.kernels.heuristics import GHOST_SHARE, HITS_TO_MOVE, MOST_HITS, SMALL_SHARE
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
IN_SMALL, IN_MAIN = 4, 8


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
    most_ghosts = int(capacity_bytes * GHOST_SHARE)
    queues = Queues(np.zeros(m, np.uint8), empty_ring(m), empty_ring(m), no_ghosts(trace.n_accesses, m))
    return int(_s3fifo(accesses(trace, capacity_bytes, hit), small, most_ghosts, queues))


@bare
def _s3fifo(reads: Accesses, most_small: int, most_ghosts: int, queues: Queues) -> int:
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
        if not to_main and need > most_small:
            continue
        while small.sums[USED] + main.sums[USED] + need > capacity:
            full_once = True
            if main.sums[USED] > capacity - most_small or small.sums[COUNT] == 0:
                _evict_main(queues, size)
            else:
                _evict_small(queues, most_ghosts, size)
        if not to_main:
            if need >= most_small:
                continue
            to_main = not full_once and small.sums[USED] >= most_small
        push(main if to_main else small, file, need)
        state[file] = IN_MAIN if to_main else IN_SMALL
        peak = max(peak, small.sums[USED] + main.sums[USED])
    return peak


@inner
def _hits(state: npt.NDArray[np.uint8], file: int) -> int:
    """Hits of a resident file in its queue."""
    return int(state[file] & MOST_HITS)


@inner
def _evict_small(queues: Queues, most_ghosts: int, size: IntArray) -> None:
    while queues.small.sums[COUNT] > 0:
        file = pop(queues.small, size)
        if _hits(queues.state, file) < HITS_TO_MOVE:
            queues.state[file] = ABSENT
            remember(queues.ghosts, most_ghosts, file, size)
            return
        push(queues.main, file, size[file])
        queues.state[file] = IN_MAIN


@inner
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


class TwoQueues(NamedTuple):
    """`state` per file; `last`: the index of its last access, for files of the LRU (the paper's Am).

    `arrivals` are the paper's A1in, `ghosts` its A1out.
    """

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
    most_arrivals, most_ghosts = int(capacity_bytes * IN_SHARE), int(capacity_bytes * OUT_SHARE)
    queues = TwoQueues(
        np.zeros(m, np.uint8), np.empty(m, np.int32), empty_ring(m), no_ghosts(trace.n_accesses, m)
    )
    return int(_two_queues(accesses(trace, capacity_bytes, hit), most_arrivals, most_ghosts, queues))


@bare
def _two_queues(reads: Accesses, most_arrivals: int, most_ghosts: int, queues: TwoQueues) -> int:
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
            if arrivals.sums[COUNT] > 0 and (arrivals.sums[USED] > most_arrivals or main_used == 0):
                victim = pop(arrivals, size)
                remember(ghosts, most_ghosts, victim, size)
                state[victim] = ABSENT
                continue
            # As in `_oldest_goes`, the trace is the queue of the LRU.
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
