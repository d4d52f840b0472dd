"""The disk of an XCache: whole files, a purge by watermarks at fixed times, pins by touch.

As measured on XRootD 5.5.3: the purge takes the files with the oldest last use; none has a per-file pin, so a
pinned file is one that is touched again at every plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from replay.kernels.jit import kernel
from replay.kernels.order import Order, append, empty_order, unlink
from replay.planner import BoolArray, IntArray
from replay.trace import ItemArray

OutcomeArray = npt.NDArray[np.uint8]

# Bits of an access's outcome; a plain miss is 0.
HIT = 1
BYPASSED = 2
REFETCHED = 4

# Entries of Disk.sums.
USED, PEAK, INFLOW, WASTED, PREFETCH_READ, NEXT_CHECK, LRU_AGE = range(7)
NO_AGE = -1


class Rules(NamedTuple):
    """Bytes and seconds: a check purges from above `high` down to `low`, every `interval`."""

    capacity: int
    low: int
    high: int
    interval: int


class Disk(NamedTuple):
    """State per file id (m entries), and the running sums in `sums`.

    `fresh`: prefetched and not read yet; `evicted`: sent away by a plan and not back yet;
    `order`: by last access.
    """

    size: IntArray
    resident: BoolArray
    pinned: BoolArray
    fresh: BoolArray
    evicted: BoolArray
    last_access: IntArray
    order: Order
    sums: IntArray


class Reads(NamedTuple):
    """The accesses in time order, and the bits of each one's outcome."""

    time_s: IntArray
    item: ItemArray
    outcome: OutcomeArray


def empty_disk(size: IntArray, rules: Rules, start_s: int) -> Disk:
    """A disk without files; checks fall on multiples of the interval since 1970, after `start_s`."""
    m = size.size
    sums = np.zeros(7, np.int64)
    sums[NEXT_CHECK] = (start_s // rules.interval + 1) * rules.interval
    sums[LRU_AGE] = NO_AGE
    return Disk(
        size=size,
        resident=np.zeros(m, np.bool_),
        pinned=np.zeros(m, np.bool_),
        fresh=np.zeros(m, np.bool_),
        evicted=np.zeros(m, np.bool_),
        last_access=np.zeros(m, np.int64),
        order=empty_order(m),
        sums=sums,
    )


@kernel
def insert(disk: Disk, file: int, now: int) -> None:
    """Put a file that is not resident on the disk, as the newest."""
    disk.resident[file] = True
    disk.evicted[file] = False
    disk.last_access[file] = now
    append(disk.order, file)
    disk.sums[USED] += disk.size[file]
    disk.sums[INFLOW] += disk.size[file]
    disk.sums[PEAK] = max(disk.sums[PEAK], disk.sums[USED])


@kernel
def use(disk: Disk, file: int, now: int) -> None:
    """Make a resident file the newest."""
    unlink(disk.order, file)
    append(disk.order, file)
    disk.last_access[file] = now


@kernel
def remove(disk: Disk, file: int) -> None:
    """Take a resident file off the disk, with its pin."""
    disk.resident[file] = False
    disk.pinned[file] = False
    unlink(disk.order, file)
    disk.sums[USED] -= disk.size[file]
    if disk.fresh[file]:
        disk.fresh[file] = False
        disk.sums[WASTED] += disk.size[file]


@kernel
def purge(disk: Disk, rules: Rules, now: int) -> int:
    """One check at `now`: the files removed, oldest first. A pin protects by being young, not otherwise."""
    if disk.sums[USED] <= rules.high:
        return 0
    n_removed = 0
    end = disk.size.size
    file = disk.order.newer[end]
    while file != end and disk.sums[USED] > rules.low:
        newer = disk.order.newer[file]
        if not disk.pinned[file]:
            disk.sums[LRU_AGE] = now - disk.last_access[file]
        remove(disk, file)
        n_removed += 1
        file = newer
    return n_removed


@kernel
def run_checks(disk: Disk, rules: Rules, until: int) -> None:
    """Every check due up to and at `until`."""
    while disk.sums[NEXT_CHECK] <= until:
        if purge(disk, rules, int(disk.sums[NEXT_CHECK])) == 0:
            # Nothing changes before the next access: the checks in between would find the same.
            disk.sums[NEXT_CHECK] = until // rules.interval * rules.interval
        disk.sums[NEXT_CHECK] += rules.interval


@kernel
def serve(disk: Disk, rules: Rules, reads: Reads, start: int, stop: int) -> None:
    """Accesses `start` … `stop` - 1, with the checks due before each; sets their outcome."""
    time_s, item, outcome = reads
    for i in range(start, stop):
        now = int(time_s[i])
        file = item[i]
        if disk.sums[NEXT_CHECK] <= now:
            run_checks(disk, rules, now)
        if disk.resident[file]:
            outcome[i] = HIT
            if disk.fresh[file]:
                disk.fresh[file] = False
                disk.sums[PREFETCH_READ] += disk.size[file]
            use(disk, file, now)
            continue
        outcome[i] = REFETCHED if disk.evicted[file] else 0
        disk.evicted[file] = False
        if disk.sums[USED] + disk.size[file] <= rules.capacity:
            insert(disk, file, now)
        else:
            outcome[i] |= BYPASSED


@kernel
def evict(disk: Disk, files: IntArray) -> None:
    """Take those of `files` that are resident off the disk."""
    for file in files:
        if disk.resident[file]:
            remove(disk, file)
            disk.evicted[file] = True


@kernel
def prefetch(disk: Disk, rules: Rules, files: IntArray, now: int) -> int:
    """Bring in, in order, those of `files` that are absent and fit; the bytes fetched."""
    fetched = 0
    for file in files:
        size = int(disk.size[file])
        if not disk.resident[file] and disk.sums[USED] + size <= rules.capacity:
            insert(disk, file, now)
            disk.fresh[file] = True
            fetched += size
    return fetched


@kernel
def pin(disk: Disk, files: IntArray, now: int) -> None:
    """Pin those of `files` that are resident, and touch every pinned file.

    As on a real XCache, a pin is nothing but a touch: `files` become the newest, the first of them last of
    all; the pins that stood before them come next, by id.
    """
    for file in range(disk.size.size):
        if disk.pinned[file]:
            use(disk, file, now)
    for i in range(files.size - 1, -1, -1):
        file = int(files[i])
        if disk.resident[file]:
            disk.pinned[file] = True
            use(disk, file, now)
