"""The disk of an XCache: what it holds, and what an access does to it.

The accesses themselves are the queue that the purge reads: each file knows which use was its latest
(`entry`), and a place in the order of closes counts only while its file names it. Touches have a queue of
their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from replay.kernels.jit import bare
from replay.kernels.tally import FETCHED, HIT_BYTES, HITS, REQUESTED
from replay.planner import BoolArray, IntArray
from replay.trace import IndexArray, ItemArray

OutcomeArray = npt.NDArray[np.uint8]

# Bits of an access's outcome; a plain miss is 0.
HIT, BYPASSED, REFETCHED = 1, 2, 4

# Bits of FLAGS: pinned; prefetched and not read yet; sent away by a plan and not back yet; never admitted.
PINNED, FRESH, EVICTED, REFUSED = 1, 2, 4, 8

# Columns of Disk.session, kept where files are open for a time.
UNTIL, ASKED = 0, 1

# Entries of Disk.sums: bytes; then the clock of checks; then places in queues.
(USED, PEAK, INFLOW, WASTED, PREFETCH_READ, REFETCH, BYPASS, SSD_HIT, SSD_USED) = range(9)
(NEXT_CHECK, CHECKS, LRU_AGE) = range(9, 12)
(TAIL, TOUCHES, TOUCH_TAIL, OPEN_TAIL, LATE, SSD_TAIL) = range(12, 18)
N_SUMS = 18
ABSENT = -1
NO_AGE = -1


class Rules(NamedTuple):
    """Bytes and seconds; 0 of `block`, `ssd` and `cold_age` means none.

    A check every `interval` purges from above `high` down to `low`; every `cold_every`-th also takes what was
    not used for `cold_age`. Files are fetched by `block`, or whole.
    """

    capacity: int
    low: int
    high: int
    interval: int
    cold_age: int
    cold_every: int
    block: int
    ssd: int


class Reads(NamedTuple):
    """The accesses in time order. `read`: bytes of each; empty: whole files.

    `rank`: place of each access in the order of closes; empty: they close at once, in time order.
    `close_time`, `closed`: time and file by that order.
    """

    time_s: IntArray
    item: ItemArray
    read: IntArray
    rank: IndexArray
    close_time: IntArray
    closed: ItemArray


class Disk(NamedTuple):
    """State per file (m entries), queues, and the running sums.

    `entry`: the latest use: a place in the order of closes, n + k for touch k, or ABSENT; `held`: bytes on
    disk, from the file's start; `opened`: the access that began its present or last session; `session`:
    int64[m, 2], UNTIL when that lasts, and when the file was last ASKED for; `ssd`: the access that made it
    newest on the SSD, or ABSENT. `touches`: file and time of each touch, oldest first; `late`: sessions that
    were still open when the purge came by.
    """

    size: IntArray
    entry: IndexArray
    held: IntArray
    flags: OutcomeArray
    opened: IndexArray
    session: IntArray
    ssd: IndexArray
    touches: IntArray
    late: IntArray
    sums: IntArray


def empty_disk(size: IntArray, refused: BoolArray, rules: Rules, start_s: int) -> Disk:
    """A disk without files; checks fall on multiples of the interval since 1970, after `start_s`."""
    m = size.size
    sums = np.zeros(N_SUMS, np.int64)
    sums[NEXT_CHECK] = (start_s // rules.interval + 1) * rules.interval
    sums[LRU_AGE] = NO_AGE
    return Disk(
        size=size,
        entry=np.full(m, ABSENT, np.int32),
        held=np.zeros(m, np.int64),
        flags=np.where(refused, REFUSED, 0).astype(np.uint8),
        opened=np.full(m, ABSENT, np.int32),
        session=np.full((m, 2), ABSENT, np.int64),
        ssd=np.full(m, ABSENT, np.int32),
        touches=np.empty((2 * m + 2, 2), np.int64),
        late=np.empty(m + 1, np.int64),
        sums=sums,
    )


@bare
def hold(disk: Disk, file: int, extra: int) -> None:
    """Put `extra` more bytes of a file on the disk."""
    sums = disk.sums
    disk.held[file] += extra
    sums[USED] += extra
    sums[INFLOW] += extra
    sums[PEAK] = max(sums[PEAK], sums[USED])
    if disk.ssd[file] != ABSENT:
        sums[SSD_USED] += extra


@bare
def remove(disk: Disk, file: int) -> None:
    """Take a resident file off the disk, with its pin."""
    sums = disk.sums
    held = disk.held[file]
    sums[USED] -= held
    if disk.ssd[file] != ABSENT:
        sums[SSD_USED] -= held
        disk.ssd[file] = ABSENT
    if disk.flags[file] & FRESH:
        sums[WASTED] += held
    disk.flags[file] &= ~np.uint8(PINNED | FRESH)
    disk.entry[file] = ABSENT
    disk.held[file] = 0


@bare
def access(disk: Disk, rules: Rules, reads: Reads, i: int, row: IntArray) -> int:
    """Serve access `i`, adding to its hour's `row`; the bits of its outcome."""
    sums = disk.sums
    file = reads.item[i]
    size = disk.size[file]
    asked = size
    want = size
    if rules.block > 0 and reads.read.size > 0:
        asked = reads.read[i]
        want = min(size, (asked + rules.block - 1) // rules.block * rules.block)
    flags = disk.flags[file]
    resident = disk.entry[file] != ABSENT
    # A whole file is held in full: one place in memory less to look at.
    have = disk.held[file] if rules.block > 0 else size if resident else np.int64(0)
    if flags & FRESH:
        sums[PREFETCH_READ] += have
    served = min(asked, have)
    row[REQUESTED] += asked
    row[HIT_BYTES] += served
    if rules.ssd > 0 and disk.ssd[file] != ABSENT:
        sums[SSD_HIT] += served
    outcome = 0
    fetched = np.int64(0)
    stays = True
    if resident and want <= have:
        outcome = HIT
        row[HITS] += 1
        _use(disk, reads, i, file)
    elif sums[USED] + want - have <= rules.capacity and not flags & REFUSED:
        fetched = want - have
        _use(disk, reads, i, file)
        hold(disk, file, fetched)
    else:
        outcome = BYPASSED
        fetched = asked - served
        sums[BYPASS] += fetched
        stays = resident
        if resident:
            _use(disk, reads, i, file)
    row[FETCHED] += fetched
    if flags & (FRESH | EVICTED):
        disk.flags[file] &= ~np.uint8(FRESH | EVICTED)
        if flags & EVICTED:
            sums[REFETCH] += fetched
            outcome |= REFETCHED
    if rules.ssd > 0 and stays:
        _promote(disk, rules, reads, i)
    return outcome


@bare
def _use(disk: Disk, reads: Reads, i: int, file: int) -> None:
    """Make access `i` a use of its file, which is on the disk from now on if it was not."""
    entry = disk.entry[file]
    if reads.rank.size == 0:
        disk.entry[file] = i
        return
    rank = np.int64(reads.rank[i])
    touched = entry >= reads.item.size
    if entry == ABSENT or touched or disk.session[file, UNTIL] < reads.time_s[i]:
        disk.opened[file] = i
    disk.session[file, ASKED] = reads.time_s[i]
    if entry < rank or touched:
        disk.entry[file] = rank
        disk.session[file, UNTIL] = reads.close_time[rank]


@bare
def _promote(disk: Disk, rules: Rules, reads: Reads, i: int) -> None:
    """A file that is read moves to the SSD, whose least recently read ones move off it."""
    sums = disk.sums
    file = reads.item[i]
    if disk.ssd[file] == ABSENT:
        if disk.held[file] > rules.ssd:
            return
        sums[SSD_USED] += disk.held[file]
    disk.ssd[file] = i
    while sums[SSD_USED] > rules.ssd:
        oldest = reads.item[sums[SSD_TAIL]]
        if disk.ssd[oldest] == sums[SSD_TAIL]:
            disk.ssd[oldest] = ABSENT
            sums[SSD_USED] -= disk.held[oldest]
        sums[SSD_TAIL] += 1
