"""The disk of an XCache: what it holds, and what an access does to it.

The purge takes files by their latest use. There are two queues of uses: the closes of accesses, in time
order, and the touches by plans. A queue is never reordered; instead each file stores which use was its
latest, and an older entry of the file in a queue is skipped.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray, IntArray
from features.common.jit import bare, inner
from replay.kernels.accesses import FETCHED, HIT_BYTES, HITS, REQUESTED
from replay.trace import IndexArray, ItemArray

OutcomeArray = npt.NDArray[np.uint8]
Count = int | np.int64

# Outcome of an access: MISS, HIT or BYPASSED; with REFETCHED added if a plan had evicted the file before.
MISS, HIT, BYPASSED, REFETCHED = 0, 1, 2, 4

# Bits of Disk.flags: pinned by a plan; prefetched and not read since; evicted by a plan and not read since;
# never admitted; among those that the plan at hand pins.
PINNED, PREFETCHED, EVICTED, REFUSED, NAMED = 1, 2, 4, 8, 16

# Columns of Disk.session: when the file's session ends, and when the file was last asked for.
UNTIL, ASKED = 0, 1

# Columns of Disk.touches.
TOUCHED_FILE, TOUCHED_AT = 0, 1

# Entries of Disk.sums. Bytes:
(USED, PEAK, INFLOW, WASTED, PREFETCH_READ, REFETCH, BYPASS, SSD_HIT, SSD_USED) = range(9)
# The time of the next purge check, the number of checks so far, and the age of the last file purged:
(NEXT_CHECK, CHECKS, LRU_AGE) = range(9, 12)
# The first entries that matter of the queues of closes, of touches, of opens and of the SSD; numbers of
# touches and of entries in `Disk.still_open`; and the number of touches at which old ones are forgotten:
(CLOSE_TAIL, TOUCH_TAIL, OPEN_TAIL, SSD_TAIL, N_TOUCHES, N_STILL_OPEN, TOUCH_ROOM) = range(12, 19)
# Of the purge check in progress: bytes of the candidates seen and freed, and the first entry of each queue
# whose file was spared (or NONE):
(SEEN, FREED, SPARED_CLOSE, SPARED_TOUCH) = range(19, 23)
N_SUMS = 23

FEW_TOUCHES = 2**16
"""Fewer than these beside those that matter are not worth forgetting."""

ABSENT = -1
NONE = -1


class Rules(NamedTuple):
    """A cache's configuration in bytes and seconds; 0 of `block`, `ssd` and `cold_age` means none.

    A check every `interval` purges from above `high` down to `low`. Every `cold_every`-th check also takes
    files that were not used for `cold_age`. Files are fetched by `block`, or whole.
    """

    capacity: int
    low: int
    high: int
    interval: int
    cold_age: int
    cold_every: int
    block: int
    ssd: int


class AccessLog(NamedTuple):
    """The accesses in time order. `read`: bytes read by each; empty if every access reads its whole file.

    `rank`: place of each access in the order of closes; empty if accesses close at once, in time order.
    `close_time`, `closed`: time and file of each close, in the order of closes.
    """

    time_s: IntArray
    item: ItemArray
    read: IntArray
    rank: IndexArray
    close_time: IntArray
    closed: ItemArray


class Disk(NamedTuple):
    """State per file (m entries), queues, and running sums.

    `latest_use`: the place of the use in the order of closes (0 … n - 1), n + k for touch k, or ABSENT: then
    the file is not on the disk, not even with a size of 0. `held`: bytes on disk, from the file's start;
    `opened`: the access that began the file's latest session, or ABSENT after a touch; `session`: int64[m,
    2], columns UNTIL and ASKED; `ssd`: the access that last read the file on the SSD, or ABSENT (without an
    SSD no entry). `touches`: file and time of each touch, oldest first; `still_open`: accesses behind
    OPEN_TAIL whose session has not ended.
    """

    size: IntArray
    latest_use: IndexArray
    held: IntArray
    flags: OutcomeArray
    opened: IndexArray
    session: IntArray
    ssd: IndexArray
    touches: IntArray
    still_open: IntArray
    sums: IntArray


def empty_disk(size: IntArray, refused: BoolArray, rules: Rules, start_s: int) -> Disk:
    """A disk without files; checks fall on multiples of the interval since 1970, after `start_s`."""
    m = size.size
    sums = np.zeros(N_SUMS, np.int64)
    sums[NEXT_CHECK] = (start_s // rules.interval + 1) * rules.interval
    sums[LRU_AGE] = NONE
    sums[TOUCH_ROOM] = min(2 * m + 2, FEW_TOUCHES)
    return Disk(
        size=size,
        latest_use=np.full(m, ABSENT, np.int32),
        held=np.zeros(m, np.int64),
        flags=np.where(refused, REFUSED, 0).astype(np.uint8),
        opened=np.full(m, ABSENT, np.int32),
        session=np.full((m, 2), ABSENT, np.int64),
        ssd=np.full(m if rules.ssd else 0, ABSENT, np.int32),
        touches=np.empty((2 * m + 2, 2), np.int64),
        still_open=np.empty(m + 1, np.int64),
        sums=sums,
    )


@bare
def closes_at_once(log: AccessLog) -> bool:
    """Whether accesses have no duration, so that no file is ever open."""
    return log.rank.size == 0


@bare
def hold(disk: Disk, file: int, extra: Count) -> None:
    """Put `extra` more bytes of a file on the disk."""
    sums = disk.sums
    disk.held[file] += extra
    sums[USED] += extra
    sums[INFLOW] += extra
    sums[PEAK] = max(sums[PEAK], sums[USED])
    if disk.ssd.size and disk.ssd[file] != ABSENT:
        sums[SSD_USED] += extra


@bare
def remove(disk: Disk, file: int) -> None:
    """Take a resident file off the disk, with its pin."""
    sums = disk.sums
    held = disk.held[file]
    sums[USED] -= held
    if disk.ssd.size and disk.ssd[file] != ABSENT:
        sums[SSD_USED] -= held
        disk.ssd[file] = ABSENT
    if disk.flags[file] & PREFETCHED:
        sums[WASTED] += held
    disk.flags[file] &= ~np.uint8(PINNED | PREFETCHED)
    disk.latest_use[file] = ABSENT
    disk.held[file] = 0


@bare
def access(disk: Disk, rules: Rules, log: AccessLog, i: int, row: IntArray) -> int:
    """Serve access `i` and add it to its hour's `row`; returns the bits of its outcome."""
    sums = disk.sums
    file = log.item[i]
    asked, needed = _request(disk, rules, log, i)
    resident = disk.latest_use[file] != ABSENT
    # A whole file is held in full: its size is at hand, `held` would be one more look-up in memory.
    have = disk.held[file] if rules.block > 0 else disk.size[file] if resident else np.int64(0)
    served = min(asked, have)
    if rules.ssd > 0 and disk.ssd[file] != ABSENT:
        sums[SSD_HIT] += served
    outcome, fetched = MISS, needed - have
    if resident and fetched <= 0:
        outcome, fetched = HIT, np.int64(0)
        row[HITS] += 1
    elif sums[USED] + fetched > rules.capacity or disk.flags[file] & REFUSED:
        outcome, fetched = BYPASSED, asked - served
        sums[BYPASS] += fetched
    else:
        hold(disk, file, fetched)
    row[REQUESTED] += asked
    row[HIT_BYTES] += served
    row[FETCHED] += fetched
    if disk.flags[file] & (PREFETCHED | EVICTED):
        outcome |= _first_read(disk, file, have, fetched)
    if resident or outcome & BYPASSED == 0:
        _use(disk, log, i, file)
        if rules.ssd > 0:
            _promote(disk, rules, log, i)
    return outcome


@inner
def _request(disk: Disk, rules: Rules, log: AccessLog, i: int) -> tuple[int, int]:
    """Bytes that access `i` asks for, and bytes that must be on the disk to serve it: whole blocks."""
    size = disk.size[log.item[i]]
    if rules.block == 0 or log.read.size == 0:
        return size, size
    asked = log.read[i]
    return asked, min(size, (asked + rules.block - 1) // rules.block * rules.block)


@inner
def _first_read(disk: Disk, file: int, have: Count, fetched: Count) -> int:
    """Account the first read after a prefetch or an eviction by a plan; the bits that the outcome gets."""
    flags = disk.flags[file]
    if flags & PREFETCHED:
        disk.sums[PREFETCH_READ] += have
    disk.flags[file] &= ~np.uint8(PREFETCHED | EVICTED)
    if not flags & EVICTED:
        return 0
    disk.sums[REFETCH] += fetched
    return REFETCHED


@inner
def _use(disk: Disk, log: AccessLog, i: int, file: int) -> None:
    """Make access `i` a use of its file, which from now on is on the disk."""
    if closes_at_once(log):
        disk.latest_use[file] = i
        return
    use = disk.latest_use[file]
    rank = np.int64(log.rank[i])
    touched = use >= log.item.size
    if use == ABSENT or touched or disk.session[file, UNTIL] < log.time_s[i]:
        disk.opened[file] = i
    disk.session[file, ASKED] = log.time_s[i]
    if use < rank or touched:
        disk.latest_use[file] = rank
        disk.session[file, UNTIL] = log.close_time[rank]


@inner
def _promote(disk: Disk, rules: Rules, log: AccessLog, i: int) -> None:
    """Move the file that access `i` reads to the SSD, and the least recently read files off it."""
    sums = disk.sums
    file = log.item[i]
    if disk.ssd[file] == ABSENT:
        if disk.held[file] > rules.ssd:
            return
        sums[SSD_USED] += disk.held[file]
    disk.ssd[file] = i
    while sums[SSD_USED] > rules.ssd:
        oldest = log.item[sums[SSD_TAIL]]
        if disk.ssd[oldest] == sums[SSD_TAIL]:
            disk.ssd[oldest] = ABSENT
            sums[SSD_USED] -= disk.held[oldest]
        sums[SSD_TAIL] += 1
