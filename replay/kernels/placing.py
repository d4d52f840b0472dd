"""What a plan does to the disk of an XCache: evictions, prefetches, and pins, which are touches."""

from __future__ import annotations

from features.common.arrays import IntArray
from features.common.jit import bare
from replay.kernels.disk import (
    ABSENT,
    ASKED,
    EVICTED,
    N_TOUCHES,
    PINNED,
    PREFETCHED,
    REFUSED,
    TOUCH_TAIL,
    TOUCHED_AT,
    TOUCHED_FILE,
    UNTIL,
    USED,
    AccessLog,
    Disk,
    Rules,
    clear_flag,
    closes_at_once,
    has,
    hold,
    is_resident,
    is_touch,
    remove,
    set_flag,
    use_by_touch,
)


@bare
def evict(disk: Disk, files: IntArray) -> None:
    """Take those of `files` that are resident off the disk."""
    for file in files:
        if is_resident(disk, file):
            remove(disk, file)
            set_flag(disk, file, EVICTED)


@bare
def prefetch(disk: Disk, rules: Rules, log: AccessLog, files: IntArray, now: int) -> int:
    """Bring in whole, in order, those of `files` that are absent, admitted and fit; the bytes that came."""
    fetched = 0
    for file in files:
        size = int(disk.size[file])
        if is_resident(disk, file) or has(disk, file, REFUSED):
            continue
        if disk.sums[USED] + size > rules.capacity:
            continue
        touch(disk, log, file, now)
        hold(disk, file, size)
        clear_flag(disk, file, EVICTED)
        set_flag(disk, file, PREFETCHED)
        fetched += size
    return fetched


@bare
def pin(disk: Disk, log: AccessLog, files: IntArray, now: int) -> None:
    """Pin those of `files` that are resident, and touch every pinned file.

    On a real XCache a pin is only a touch. `files` become the newest, the first of them the very newest; the
    files pinned before come next, by id.
    """
    for file in range(disk.size.size):
        if has(disk, file, PINNED):
            touch(disk, log, file, now)
    for i in range(files.size - 1, -1, -1):
        file = int(files[i])
        if is_resident(disk, file):
            set_flag(disk, file, PINNED)
            touch(disk, log, file, now)


@bare
def unpin(disk: Disk, files: IntArray) -> None:
    """Stop touching `files`."""
    for file in files:
        clear_flag(disk, file, PINNED)


@bare
def touch(disk: Disk, log: AccessLog, file: int, now: int) -> None:
    """Make a file the newest, putting it on the disk if it is absent.

    A file that a job has open at `now` keeps its order: its close will be later.
    """
    sums = disk.sums
    disk.session[file, ASKED] = now
    used_by_access = is_resident(disk, file) and not is_touch(log, disk.latest_use[file])
    if used_by_access and not closes_at_once(log) and disk.session[file, UNTIL] >= now:
        return
    if sums[N_TOUCHES] == disk.touches.shape[0]:
        _forget_touches(disk, log)
    k = sums[N_TOUCHES]
    disk.touches[k, TOUCHED_FILE] = file
    disk.touches[k, TOUCHED_AT] = now
    disk.latest_use[file] = use_by_touch(log, k)
    disk.session[file, UNTIL] = now
    disk.opened[file] = ABSENT
    sums[N_TOUCHES] += 1


@bare
def _forget_touches(disk: Disk, log: AccessLog) -> None:
    """Make room in `touches`: keep those that are a file's latest use, which are at most half of them."""
    kept = 0
    for k in range(disk.sums[TOUCH_TAIL], disk.sums[N_TOUCHES]):
        file = disk.touches[k, TOUCHED_FILE]
        if disk.latest_use[file] == use_by_touch(log, k):
            disk.touches[kept, TOUCHED_FILE] = file
            disk.touches[kept, TOUCHED_AT] = disk.touches[k, TOUCHED_AT]
            disk.latest_use[file] = use_by_touch(log, kept)
            kept += 1
    disk.sums[N_TOUCHES] = kept
    disk.sums[TOUCH_TAIL] = 0
