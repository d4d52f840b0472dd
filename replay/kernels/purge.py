"""The purge of an XCache, and the loop that serves accesses between its checks.

This is what XRootD 5.5 to 6.2 does at a check. Candidates are ordered by their latest close, open files by
the start of their session. The oldest are collected until their bytes are twice what must go. Of these, open
files are passed over, and so are files that were asked for since the last check. So a purge can fall short of
the low watermark. What a plan does to the disk (evictions, prefetches, and pins, which are touches) comes
last.
"""

from typing import NamedTuple

import numpy as np

from features.common.arrays import IntArray
from features.common.jit import bare, inner
from replay.kernels import disk as kernels
from replay.kernels.accesses import AHEAD, Part, Tally, fetch
from replay.kernels.disk import AccessLog, Disk, OutcomeArray, Rules


class Record(NamedTuple):
    """The results of accesses: the outcome of each one, and sums per hour."""

    outcome: OutcomeArray
    tally: Tally


class Candidate(NamedTuple):
    """A file that is next to be purged: when it was last used, and last asked for."""

    file: int
    used_at: int
    asked_at: int


class Queue(NamedTuple):
    """The entries of Disk.sums that belong to one queue of uses."""

    tail: int
    first_spared: int


_CLOSES = Queue(kernels.CLOSE_TAIL, kernels.SPARED_CLOSE)
_TOUCHES = Queue(kernels.TOUCH_TAIL, kernels.SPARED_TOUCH)
_NEVER = 2**62
_LONG_AGO = -(2**62)


@bare
def serve(disk: Disk, rules: Rules, log: AccessLog, record: Record, part: Part) -> None:
    """Serve the accesses of `part` and run the checks due before each; fills in `record`."""
    outcome, tally = record
    hour = np.searchsorted(tally.first, part.start, side="right") - 1
    for i in range(part.start, part.stop):
        if i >= tally.first[hour + 1]:
            hour += 1
        now = log.time_s[i]
        if i + AHEAD < part.stop:
            _fetch_file(disk, log, i + AHEAD)
        if disk.sums[kernels.NEXT_CHECK] <= now:
            run_checks(disk, rules, log, now)
        outcome[i] = kernels.access(disk, rules, log, i, tally.sums[hour])
        tally.used[hour] += disk.sums[kernels.USED]


@inner
def _fetch_file(disk: Disk, log: AccessLog, i: int) -> None:
    file = log.item[i]
    fetch(disk.latest_use, file)
    fetch(disk.size, file)
    fetch(disk.flags, file)
    if not kernels.closes_at_once(log):
        fetch(disk.session, 2 * file)
        fetch(disk.opened, file)
        fetch(log.close_time, log.rank[i])


@bare
def run_checks(disk: Disk, rules: Rules, log: AccessLog, until: int) -> None:
    """Run every check due up to and at `until`."""
    sums = disk.sums
    while sums[kernels.NEXT_CHECK] <= until:
        if sums[kernels.USED] <= rules.high and rules.cold_age == 0:
            # Nothing grows before the next access: the checks in between would find the same.
            sums[kernels.NEXT_CHECK] = until // rules.interval * rules.interval
        else:
            sums[kernels.CHECKS] += 1
            _purge(disk, rules, log, sums[kernels.NEXT_CHECK])
        sums[kernels.NEXT_CHECK] += rules.interval


@inner
def _purge(disk: Disk, rules: Rules, log: AccessLog, now: int) -> None:
    """One check: cold files if it is their turn, then the oldest candidates down to the low watermark."""
    sums = disk.sums
    to_free = sums[kernels.USED] - rules.low if sums[kernels.USED] > rules.high else np.int64(0)
    takes_cold = rules.cold_age > 0 and sums[kernels.CHECKS] % rules.cold_every == 0
    cold_before = np.int64(now - rules.cold_age if takes_cold else _LONG_AGO)
    n_passed = 0
    sums[kernels.SEEN], sums[kernels.FREED] = 0, 0
    sums[kernels.SPARED_CLOSE], sums[kernels.SPARED_TOUCH] = kernels.NONE, kernels.NONE
    _drop_ended_sessions(disk, log, now)
    while True:
        closed_at = _oldest_close(disk, log, now)
        touched_at = _oldest_touch(disk, log)
        opened_at = _oldest_open(disk, log, now, n_passed)
        oldest = min(closed_at, touched_at, opened_at)
        enough = sums[kernels.FREED] >= to_free or sums[kernels.SEEN] >= 2 * to_free
        if oldest == _NEVER or (enough and oldest >= cold_before):
            break
        if opened_at < closed_at and opened_at < touched_at:
            _pass_open(disk, log, n_passed)
            n_passed += 1
        elif closed_at <= touched_at:
            file = int(log.closed[sums[kernels.CLOSE_TAIL]])
            _judge(disk, rules, _candidate(disk, log, file, closed_at), _CLOSES, now)
        else:
            file = int(disk.touches[sums[kernels.TOUCH_TAIL], kernels.TOUCHED_FILE])
            _judge(disk, rules, _candidate(disk, log, file, touched_at), _TOUCHES, now)
    # The next check starts with the files that this one spared.
    if sums[kernels.SPARED_CLOSE] != kernels.NONE:
        sums[kernels.CLOSE_TAIL] = sums[kernels.SPARED_CLOSE]
    if sums[kernels.SPARED_TOUCH] != kernels.NONE:
        sums[kernels.TOUCH_TAIL] = sums[kernels.SPARED_TOUCH]


@inner
def _candidate(disk: Disk, log: AccessLog, file: int, used_at: int) -> Candidate:
    # Without durations, a file's latest use is when it was last asked for.
    asked_at = used_at if kernels.closes_at_once(log) else int(disk.session[file, kernels.ASKED])
    return Candidate(file, used_at, asked_at)


@inner
def _judge(disk: Disk, rules: Rules, candidate: Candidate, queue: Queue, now: int) -> None:
    """Purge the candidate at the tail of `queue`, or spare it if it was asked for since the last check."""
    sums = disk.sums
    file = candidate.file
    sums[kernels.SEEN] += disk.held[file]
    if candidate.asked_at >= now - rules.interval:
        if sums[queue.first_spared] == kernels.NONE:
            sums[queue.first_spared] = sums[queue.tail]
        sums[queue.tail] += 1
        return
    if not disk.flags[file] & kernels.PINNED:
        sums[kernels.LRU_AGE] = now - candidate.used_at
    sums[kernels.FREED] += disk.held[file]
    kernels.remove(disk, file)


@inner
def _pass_open(disk: Disk, log: AccessLog, n_passed: int) -> None:
    """Pass over the oldest open file, remembering its session if it is new to the list."""
    sums = disk.sums
    if n_passed == sums[kernels.N_STILL_OPEN]:
        disk.still_open[n_passed] = sums[kernels.OPEN_TAIL]
        sums[kernels.N_STILL_OPEN] += 1
        sums[kernels.OPEN_TAIL] += 1
    sums[kernels.SEEN] += disk.held[log.item[disk.still_open[n_passed]]]


@inner
def _oldest_close(disk: Disk, log: AccessLog, now: int) -> int:
    """When the oldest close before `now` is, of a file's latest use, or _NEVER; CLOSE_TAIL is moved to it."""
    tail = disk.sums[kernels.CLOSE_TAIL]
    while tail < log.closed.size and log.close_time[tail] < now:
        if tail + AHEAD < log.closed.size:
            fetch(disk.latest_use, log.closed[tail + AHEAD])
            fetch(disk.held, log.closed[tail + AHEAD])
        if disk.latest_use[log.closed[tail]] == tail:
            disk.sums[kernels.CLOSE_TAIL] = tail
            return int(log.close_time[tail])
        tail += 1
    disk.sums[kernels.CLOSE_TAIL] = tail
    return _NEVER


@inner
def _oldest_touch(disk: Disk, log: AccessLog) -> int:
    """Time of the oldest touch that is a resident file's latest use, or _NEVER; TOUCH_TAIL is moved to it."""
    tail = disk.sums[kernels.TOUCH_TAIL]
    while tail < disk.sums[kernels.N_TOUCHES]:
        if disk.latest_use[disk.touches[tail, kernels.TOUCHED_FILE]] == log.item.size + tail:
            disk.sums[kernels.TOUCH_TAIL] = tail
            return int(disk.touches[tail, kernels.TOUCHED_AT])
        tail += 1
    disk.sums[kernels.TOUCH_TAIL] = tail
    return _NEVER


@inner
def _oldest_open(disk: Disk, log: AccessLog, now: int, n_passed: int) -> int:
    """Start of the oldest session open at `now`, after `n_passed` of them; or _NEVER.

    These are first the sessions in `still_open`, then the ones from OPEN_TAIL on, which is moved to the next.
    """
    if kernels.closes_at_once(log):
        return _NEVER
    if n_passed < disk.sums[kernels.N_STILL_OPEN]:
        return int(log.time_s[disk.still_open[n_passed]])
    tail = disk.sums[kernels.OPEN_TAIL]
    while tail < log.item.size and log.time_s[tail] < now:
        if _is_open(disk, log, tail, now):
            disk.sums[kernels.OPEN_TAIL] = tail
            return int(log.time_s[tail])
        tail += 1
    disk.sums[kernels.OPEN_TAIL] = tail
    return _NEVER


@inner
def _drop_ended_sessions(disk: Disk, log: AccessLog, now: int) -> None:
    """Keep in `still_open` only the sessions that are open at `now`."""
    n_open = 0
    for k in range(disk.sums[kernels.N_STILL_OPEN]):
        if _is_open(disk, log, disk.still_open[k], now):
            disk.still_open[n_open] = disk.still_open[k]
            n_open += 1
    disk.sums[kernels.N_STILL_OPEN] = n_open


@inner
def _is_open(disk: Disk, log: AccessLog, i: int, now: int) -> bool:
    """Whether access `i` began the present session of its file, and the file is resident."""
    file = log.item[i]
    is_present = disk.opened[file] == i and disk.session[file, kernels.UNTIL] >= now
    return bool(is_present and disk.latest_use[file] != kernels.ABSENT)


@bare
def evict(disk: Disk, files: IntArray) -> None:
    """Take those of `files` that are resident off the disk."""
    for file in files:
        if disk.latest_use[file] != kernels.ABSENT:
            kernels.remove(disk, file)
            disk.flags[file] |= kernels.EVICTED


@bare
def prefetch(disk: Disk, rules: Rules, log: AccessLog, files: IntArray, now: int) -> int:
    """Bring in whole, in order, those of `files` that are absent, admitted and fit; the bytes that came."""
    fetched = 0
    for file in files:
        size = int(disk.size[file])
        if disk.latest_use[file] != kernels.ABSENT or disk.flags[file] & kernels.REFUSED:
            continue
        if disk.sums[kernels.USED] + size > rules.capacity:
            continue
        touch(disk, log, file, now)
        kernels.hold(disk, file, size)
        disk.flags[file] = (disk.flags[file] & ~np.uint8(kernels.EVICTED)) | kernels.PREFETCHED
        fetched += size
    return fetched


@bare
def pin(disk: Disk, log: AccessLog, files: IntArray, now: int) -> None:
    """Pin those of `files` that are resident, and touch every pinned file.

    On a real XCache a pin is only a touch. `files` become the newest, the first of them the very newest; the
    files pinned before come next, by id.
    """
    for file in files:
        disk.flags[file] |= np.uint8(kernels.NAMED)
    for file in range(disk.size.size):
        if disk.flags[file] & (kernels.PINNED | kernels.NAMED) == kernels.PINNED:
            touch(disk, log, file, now)
    for i in range(files.size - 1, -1, -1):
        if i >= AHEAD:
            fetch(disk.latest_use, files[i - AHEAD])
            fetch(disk.session, 2 * files[i - AHEAD])
            fetch(disk.opened, files[i - AHEAD])
        file = int(files[i])
        disk.flags[file] &= ~np.uint8(kernels.NAMED)
        if disk.latest_use[file] != kernels.ABSENT:
            disk.flags[file] |= kernels.PINNED
            touch(disk, log, file, now)


@bare
def unpin(disk: Disk, files: IntArray) -> None:
    """Stop touching `files`."""
    for file in files:
        disk.flags[file] &= ~np.uint8(kernels.PINNED)


@inner
def touch(disk: Disk, log: AccessLog, file: int, now: int) -> None:
    """Make a file the newest, putting it on the disk if it is absent.

    A file that a job has open at `now` keeps its order: its close will be later.
    """
    sums = disk.sums
    disk.session[file, kernels.ASKED] = now
    used_by_access = kernels.ABSENT != disk.latest_use[file] < log.item.size
    if used_by_access and not kernels.closes_at_once(log) and disk.session[file, kernels.UNTIL] >= now:
        return
    if sums[kernels.N_TOUCHES] == sums[kernels.TOUCH_ROOM]:
        _forget_touches(disk, log)
    k = sums[kernels.N_TOUCHES]
    disk.touches[k, kernels.TOUCHED_FILE] = file
    disk.touches[k, kernels.TOUCHED_AT] = now
    disk.latest_use[file] = log.item.size + k
    disk.session[file, kernels.UNTIL] = now
    disk.opened[file] = kernels.ABSENT
    sums[kernels.N_TOUCHES] += 1


@inner
def _forget_touches(disk: Disk, log: AccessLog) -> None:
    """Make room in `touches`, which has it for two of each file: keep those that are a file's latest use."""
    n_latest, n_touches = 0, disk.sums[kernels.N_TOUCHES]
    for k in range(disk.sums[kernels.TOUCH_TAIL], n_touches):
        if k + AHEAD < n_touches:
            fetch(disk.latest_use, disk.touches[k + AHEAD, kernels.TOUCHED_FILE])
        file = disk.touches[k, kernels.TOUCHED_FILE]
        if disk.latest_use[file] == log.item.size + k:
            disk.touches[n_latest, kernels.TOUCHED_FILE] = file
            disk.touches[n_latest, kernels.TOUCHED_AT] = disk.touches[k, kernels.TOUCHED_AT]
            disk.latest_use[file] = log.item.size + n_latest
            n_latest += 1
    disk.sums[kernels.N_TOUCHES] = n_latest
    disk.sums[kernels.TOUCH_TAIL] = 0
    # Not all of the array: its pages take memory once they are written.
    disk.sums[kernels.TOUCH_ROOM] = min(disk.touches.shape[0], 2 * n_latest + kernels.FEW_TOUCHES)
