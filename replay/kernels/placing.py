"""What a plan does to the disk of an XCache: evictions, prefetches and pins, which are touches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replay.kernels.disk import (
    ABSENT,
    ASKED,
    EVICTED,
    FRESH,
    PINNED,
    REFUSED,
    TOUCH_TAIL,
    TOUCHES,
    UNTIL,
    USED,
    Disk,
    Reads,
    Rules,
    hold,
    remove,
)
from replay.kernels.jit import bare
from replay.planner import IntArray


class Limits(NamedTuple):
    """A prefetch's moment, s since 1970, and the most bytes it may bring."""

    now: int
    budget: int


@bare
def evict(disk: Disk, files: IntArray) -> None:
    """Take those of `files` that are resident off the disk."""
    for file in files:
        if disk.entry[file] != ABSENT:
            remove(disk, file)
            disk.flags[file] |= EVICTED


@bare
def prefetch(disk: Disk, rules: Rules, reads: Reads, files: IntArray, limits: Limits) -> tuple[int, int]:
    """Bring in whole, in order, those of `files` that are absent, admitted and fit.

    Returned are the bytes that came, and those that the budget kept out.
    """
    now, budget = limits
    fetched = 0
    over = 0
    for file in files:
        size = int(disk.size[file])
        if disk.entry[file] != ABSENT or disk.flags[file] & REFUSED:
            continue
        if disk.sums[USED] + size > rules.capacity:
            continue
        if fetched + size > budget:
            over += size
            continue
        touch(disk, reads, file, now)
        hold(disk, file, size)
        disk.flags[file] = (disk.flags[file] | FRESH) & ~np.uint8(EVICTED)
        fetched += size
    return fetched, over


@bare
def pin(disk: Disk, reads: Reads, files: IntArray, now: int) -> None:
    """Pin those of `files` that are resident, and touch every pinned file.

    As on a real XCache, a pin is nothing but a touch: `files` become the newest, the first of them last of
    all; the pins that stood before them come next, by id.
    """
    for file in range(disk.size.size):
        if disk.flags[file] & PINNED:
            touch(disk, reads, file, now)
    for i in range(files.size - 1, -1, -1):
        file = int(files[i])
        if disk.entry[file] != ABSENT:
            disk.flags[file] |= PINNED
            touch(disk, reads, file, now)


@bare
def unpin(disk: Disk, files: IntArray) -> None:
    """Touch `files` no more."""
    for file in files:
        disk.flags[file] &= ~np.uint8(PINNED)


@bare
def touch(disk: Disk, reads: Reads, file: int, now: int) -> None:
    """Make a file the newest, or put it in as that; one that is open now is newer still when it is closed."""
    sums = disk.sums
    n = reads.item.size
    disk.session[file, ASKED] = now
    used_by_access = ABSENT < disk.entry[file] < n
    if used_by_access and reads.rank.size > 0 and disk.session[file, UNTIL] >= now:
        return
    if sums[TOUCHES] == disk.touches.shape[0]:
        _forget_touches(disk, reads)
    k = sums[TOUCHES]
    disk.touches[k, 0] = file
    disk.touches[k, 1] = now
    disk.entry[file] = n + k
    disk.session[file, UNTIL] = now
    disk.opened[file] = ABSENT
    sums[TOUCHES] += 1


@bare
def _forget_touches(disk: Disk, reads: Reads) -> None:
    """Make room: of the touches only the latest use of a file counts, which are at most half of them."""
    n = reads.item.size
    kept = 0
    for k in range(disk.sums[TOUCH_TAIL], disk.sums[TOUCHES]):
        file = disk.touches[k, 0]
        if disk.entry[file] == n + k:
            disk.touches[kept, 0] = file
            disk.touches[kept, 1] = disk.touches[k, 1]
            disk.entry[file] = n + kept
            kept += 1
    disk.sums[TOUCHES] = kept
    disk.sums[TOUCH_TAIL] = 0
