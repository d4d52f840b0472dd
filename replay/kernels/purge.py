"""The purge of an XCache, and the loop that serves accesses between its checks.

As XRootD 5.5 to 6.2 do it: candidates are ordered by their latest close, open files by the start of their
session; the oldest are collected up to twice the bytes that must go; of these, open ones are passed over, and
those that were asked for since the last check. So a purge can fall short of the low watermark.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replay.kernels.ahead import AHEAD, fetch
from replay.kernels.disk import (
    ABSENT,
    ASKED,
    CHECKS,
    LATE,
    LRU_AGE,
    NEXT_CHECK,
    OPEN_TAIL,
    PINNED,
    TAIL,
    TOUCH_TAIL,
    TOUCHES,
    UNTIL,
    USED,
    Disk,
    OutcomeArray,
    Reads,
    Rules,
    access,
    remove,
)
from replay.kernels.jit import bare
from replay.kernels.tally import USED_AFTER, Tally


class Record(NamedTuple):
    """What is kept of accesses: the bits of each one's outcome, and sums per hour."""

    outcome: OutcomeArray
    tally: Tally


class Part(NamedTuple):
    """Accesses `start` … `stop` - 1."""

    start: int
    stop: int


_NEVER = 2**62
_LONG_AGO = -(2**62)


@bare
def serve(disk: Disk, rules: Rules, reads: Reads, record: Record, part: Part) -> None:
    """The accesses of `part`, with the checks due before each; sets their outcome and adds to their hours."""
    outcome, tally = record
    hour = np.searchsorted(tally.first, part.start, side="right") - 1
    for i in range(part.start, part.stop):
        if i >= tally.first[hour + 1]:
            hour += 1
        now = reads.time_s[i]
        if i + AHEAD < part.stop:
            _fetch_file(disk, reads, reads.item[i + AHEAD])
        if disk.sums[NEXT_CHECK] <= now:
            run_checks(disk, rules, reads, now)
        row = tally.sums[hour]
        outcome[i] = access(disk, rules, reads, i, row)
        row[USED_AFTER] = disk.sums[USED]


@bare
def _fetch_file(disk: Disk, reads: Reads, file: int) -> None:
    fetch(disk.entry, file)
    fetch(disk.size, file)
    fetch(disk.flags, file)
    if reads.rank.size > 0:
        fetch(disk.session, 2 * file)


@bare
def run_checks(disk: Disk, rules: Rules, reads: Reads, until: int) -> None:
    """Every check due up to and at `until`."""
    sums = disk.sums
    while sums[NEXT_CHECK] <= until:
        if sums[USED] <= rules.high and rules.cold_age == 0:
            # Nothing grows before the next access: the checks in between would find the same.
            sums[NEXT_CHECK] = until // rules.interval * rules.interval
        else:
            sums[CHECKS] += 1
            _purge(disk, rules, reads, sums[NEXT_CHECK])
        sums[NEXT_CHECK] += rules.interval


@bare
def _purge(disk: Disk, rules: Rules, reads: Reads, now: int) -> None:
    """One check: cold files if it is their turn, then the oldest candidates down to the low watermark."""
    sums = disk.sums
    need = sums[USED] - rules.low if sums[USED] > rules.high else np.int64(0)
    cold = _LONG_AGO
    if rules.cold_age > 0 and sums[CHECKS] % rules.cold_every == 0:
        cold = int(now - rules.cold_age)
    spare_from = now - rules.interval
    seen = np.int64(0)
    freed = np.int64(0)
    late = 0
    spared_closed = np.int64(-1)
    spared_touched = np.int64(-1)
    _drop_closed(disk, reads, now)
    while True:
        closed_at = _next_closed(disk, reads, now)
        touched_at = _next_touched(disk, reads)
        opened_at = _next_open(disk, reads, now, late)
        stamp = min(closed_at, touched_at, opened_at)
        if stamp == _NEVER or (stamp >= cold and (freed >= need or seen >= 2 * need)):
            break
        if opened_at < closed_at and opened_at < touched_at:
            if late == sums[LATE]:
                disk.late[late] = sums[OPEN_TAIL]
                sums[LATE] += 1
                sums[OPEN_TAIL] += 1
            seen += disk.held[reads.item[disk.late[late]]]
            late += 1
            continue
        by_access = closed_at <= touched_at
        queue = TAIL if by_access else TOUCH_TAIL
        at = sums[queue]
        file = int(reads.closed[at]) if by_access else int(disk.touches[at, 0])
        seen += disk.held[file]
        # Where nothing stays open a file's latest use is when it was last asked for.
        asked = stamp if reads.rank.size == 0 else disk.session[file, ASKED]
        if asked >= spare_from:
            # The queue goes on past it now, and starts with it again at the next check.
            sums[queue] += 1
            if by_access and spared_closed < 0:
                spared_closed = at
            if not by_access and spared_touched < 0:
                spared_touched = at
            continue
        if not disk.flags[file] & PINNED:
            sums[LRU_AGE] = now - stamp
        freed += disk.held[file]
        remove(disk, file)
    if spared_closed >= 0:
        sums[TAIL] = spared_closed
    if spared_touched >= 0:
        sums[TOUCH_TAIL] = spared_touched


@bare
def _next_closed(disk: Disk, reads: Reads, now: int) -> int:
    """Time of the oldest close before `now` that is the latest use of a resident file, at TAIL; or _NEVER."""
    tail = disk.sums[TAIL]
    while tail < reads.closed.size and reads.close_time[tail] < now:
        if tail + AHEAD < reads.closed.size:
            fetch(disk.entry, reads.closed[tail + AHEAD])
            fetch(disk.held, reads.closed[tail + AHEAD])
        if disk.entry[reads.closed[tail]] == tail:
            disk.sums[TAIL] = tail
            return int(reads.close_time[tail])
        tail += 1
    disk.sums[TAIL] = tail
    return _NEVER


@bare
def _next_touched(disk: Disk, reads: Reads) -> int:
    """The same for touches, at TOUCH_TAIL."""
    n = reads.item.size
    tail = disk.sums[TOUCH_TAIL]
    while tail < disk.sums[TOUCHES]:
        if disk.entry[disk.touches[tail, 0]] == n + tail:
            disk.sums[TOUCH_TAIL] = tail
            return int(disk.touches[tail, 1])
        tail += 1
    disk.sums[TOUCH_TAIL] = tail
    return _NEVER


@bare
def _next_open(disk: Disk, reads: Reads, now: int, late: int) -> int:
    """Start of the oldest session open at `now`: late one `late`, else the one at OPEN_TAIL; or _NEVER."""
    if reads.rank.size == 0:
        return _NEVER
    if late < disk.sums[LATE]:
        return int(reads.time_s[disk.late[late]])
    tail = disk.sums[OPEN_TAIL]
    while tail < reads.item.size and reads.time_s[tail] < now:
        if _is_open(disk, reads, tail, now):
            disk.sums[OPEN_TAIL] = tail
            return int(reads.time_s[tail])
        tail += 1
    disk.sums[OPEN_TAIL] = tail
    return _NEVER


@bare
def _drop_closed(disk: Disk, reads: Reads, now: int) -> None:
    kept = 0
    for k in range(disk.sums[LATE]):
        if _is_open(disk, reads, disk.late[k], now):
            disk.late[kept] = disk.late[k]
            kept += 1
    disk.sums[LATE] = kept


@bare
def _is_open(disk: Disk, reads: Reads, i: int, now: int) -> bool:
    """Access `i` began the present session of its file, which is resident."""
    file = reads.item[i]
    return bool(disk.opened[file] == i and disk.session[file, UNTIL] >= now and disk.entry[file] != ABSENT)
