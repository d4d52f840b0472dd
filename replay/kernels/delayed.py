"""A cache beside which a steward evicts, with the delays of a live one: what it does, and what is known when.

What the steward does is what `replay.steward.Steward` does beside a live cache.
"""

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, Ids, IntArray
from features.common.jit import bare, inner, wide
from features.stream.state import Read
from replay.access_context import QueuedReads
from replay.kernels import followed as order_of
from replay.kernels import heuristics
from replay.kernels.auto import Learnt
from replay.kernels.followed import Ask, Event, Followed
from replay.kernels.heap import Agenda, enter, new_agenda, next_s, strike
from replay.kernels.heuristics import ALL, LRU, Heuristic, new_heuristic, without_turns
from replay.kernels.links import newer, oldest
from replay.kernels.scored_files import Eviction

ABSENT = -1
NOT_YET = np.iinfo(np.int64).max
LONG_AGO = np.iinfo(np.int64).min

# What is due: a read and its file become known; a file that was read is closed; a look; an eviction takes
# effect; a file that a plan prefetches has come; a cycle of plans begins; a plan is due; the next read. Each
# is of an access or a file, see `what`.
SEEN, CLOSED, LOOK, GOES, COMES, CYCLE, PLAN, READ = range(8)
N_KINDS = 8

# Entries of Cache.sums: accesses that were served; bytes on disk, the most, and those that came in this
# cycle; bytes of evictions on their way; whether a look is due; files that were prefetched; the learned
# order, or the time, for which `serve` returned.
(SERVED, USED, PEAK, INFLOW, LEAVING, IS_LOOK_DUE, N_CAME, ASKED) = range(8)

# Why `serve` returns.
DONE, LEARNS, PLANS = range(3)

# Columns of Cache.came.
CAME_S, BYTES, ENDED_S, IS_READ = range(4)


class Delays(NamedTuple):
    """Delays beside a live cache, in s; all zero: the steward decides at each read.

    `seen_s`: until a read and the file that it brought are known; `look_s`: between two looks at the disk, 0:
    at each read that needs room; `headroom`: share of the capacity that is kept free at a look; `effect_s`:
    until an eviction has taken effect; `open_s`: that a file is open from a read on, if the trace does not
    say when it is closed; 0: at once. Open files stay. `fetch_s`: until a file that a plan prefetches has
    come.
    """

    seen_s: int = 0
    look_s: int = 0
    headroom: float = 0.0
    effect_s: int = 0
    open_s: int = 0
    fetch_s: int = 0


class Reads(NamedTuple):
    """Reads in time order, [n] each: of the first `needed` bytes of a file; what queues say.

    The file is open until `close_s`.

    Filled in: `had`, bytes on disk before, ABSENT: none; `fetched`, -1: it went past the cache; `refetched`,
    as much of it as a plan had evicted.
    """

    time_s: IntArray
    item: Ids
    reader: IntArray
    close_s: IntArray
    needed: IntArray
    queued: QueuedReads
    n_told: IntArray
    had: IntArray
    fetched: IntArray
    refetched: IntArray


class Cache(NamedTuple):
    """A cache of files, [m] each, of which the steward keeps `target` bytes at a look, and follows `learnt`.

    Of the cache: `size` of a whole file; `held`, bytes on disk or ABSENT; `open_until_s`; `last_use_s`;
    `own`, its LRU. Of the steward: `opens`, clients and evictions on their way; `spare`, files that stay;
    `pinned`; `leaving`, bytes of an eviction on its way. Of plans: `first`, files that go first, `is_first`;
    `by_plan`, whether the eviction on its way is planned; `away`, evicted by a plan and not read since;
    `unread`, place in `came` of a file that was not read since it came, -1: none.
    """

    capacity: int
    target: int
    delays: Delays
    learnt: Learnt
    size: IntArray
    held: IntArray
    open_until_s: IntArray
    last_use_s: IntArray
    own: Heuristic
    opens: Ids
    spare: BoolArray
    pinned: BoolArray
    leaving: IntArray
    first: IntArray
    is_first: BoolArray
    by_plan: BoolArray
    away: BoolArray
    unread: IntArray
    came: IntArray
    agenda: Agenda
    victim: Ids
    sums: IntArray


def new_cache(capacity_bytes: int, delays: Delays, learnt: Learnt, size: IntArray, n_reads: int) -> Cache:
    """An empty cache for files of these sizes, and so many reads."""
    m = size.size
    # Pending at once: each read until it is seen and closed, each file until it has gone, a look.
    agenda = new_agenda(2 * n_reads + m + 2)
    return Cache(
        capacity_bytes,
        int(capacity_bytes * (1 - delays.headroom)),
        delays,
        learnt,
        size=size,
        held=np.full(m, ABSENT, np.int64),
        open_until_s=np.full(m, LONG_AGO),
        last_use_s=np.zeros(m, np.int64),
        own=without_turns(new_heuristic(LRU, 0, m, 0)),
        opens=np.zeros(m, np.int32),
        spare=np.zeros(m, np.bool_),
        pinned=np.zeros(m, np.bool_),
        leaving=np.zeros(m, np.int64),
        first=np.zeros(0, np.int64),
        is_first=np.zeros(m, np.bool_),
        by_plan=np.zeros(m, np.bool_),
        away=np.zeros(m, np.bool_),
        unread=np.full(m, -1, np.int64),
        came=np.zeros((0, 4), np.int64),
        agenda=agenda,
        victim=np.zeros(m, np.int32),
        sums=np.zeros(ASKED + 1, np.int64),
    )


@bare
def what(kind: int, of: int) -> int:
    """What is due: a kind, of an access or a file."""
    return of * N_KINDS + kind


@bare
def serve(cache: Cache, order: Followed, reads: Reads, begins_s: FloatArray) -> int:
    """Serve reads, and do what is due before each, until all are served; why it returns.

    LEARNS: another learned order is to be followed, which `begins_s` (float64[k]) says; `sums[ASKED]`: its
    number. PLANS: a plan is due at `sums[ASKED]`. To be called again then.
    """
    sums, agenda, delays = cache.sums, cache.agenda, cache.delays
    while sums[SERVED] < reads.time_s.size:
        i = sums[SERVED]
        now_s = reads.time_s[i]
        is_due = next_s(agenda) <= now_s
        due_s = agenda.heap.key[0] if is_due else now_s
        while reads.n_told[0] < reads.queued.at_s.size and reads.queued.at_s[reads.n_told[0]] <= due_s:
            k = reads.n_told[0]
            order_of.tell(wide(reads.queued.file[k]), reads.queued.due_s[k], *order)
            reads.n_told[0] += 1
        thing = agenda.heap.what[0]
        kind, of = (thing % N_KINDS, thing // N_KINDS) if is_due else (READ, i)
        if begins_s.size:
            is_read = kind == SEEN or (kind == READ and delays.seen_s == 0)
            asks_s = reads.time_s[of] if kind == SEEN else due_s
            sums[ASKED] = _number(begins_s, asks_s, order_of.begun(is_read, *order))
            if sums[ASKED] != cache.learnt.at:
                return LEARNS
        if kind == READ:
            sums[SERVED] += 1
            _read(cache, order, reads, i)
            continue
        strike(agenda)
        if kind == PLAN:
            sums[ASKED] = due_s
            return PLANS
        if kind == SEEN:
            _see(cache, order, reads, of)
        else:
            _act(cache, order, kind, of, due_s)
    return DONE


@inner
def _act(cache: Cache, order: Followed, kind: int, file: int, now_s: int) -> None:
    """What is due happens."""
    if kind == CLOSED:
        _close(cache, order, file)
    elif kind == LOOK:
        _look(cache, order, now_s, wide(0))
    elif kind == GOES:
        _go(cache, order, file, now_s)
    elif kind == COMES:
        _come(cache, order, file, now_s)
    else:
        cache.sums[INFLOW] = 0


@inner
def _number(begins_s: FloatArray, at_s: float, begun: int) -> int:
    """The learned order that is followed at a time, or the one that has begun if it is later; -1: none."""
    while begun + 1 < begins_s.size and begins_s[begun + 1] <= at_s:
        begun += 1
    return begun


@inner
def _read(cache: Cache, order: Followed, reads: Reads, i: int) -> None:
    """Serve read `i`, which becomes known later."""
    file, now_s, needed = wide(reads.item[i]), reads.time_s[i], reads.needed[i]
    had = cache.held[file]
    fetched = 0 if had >= needed else _fetch(cache, order, file, needed, now_s)
    reads.had[i], reads.fetched[i] = had, fetched
    _end(cache, file, now_s, True)
    if cache.away[file]:
        cache.away[file] = False
        reads.refetched[i] = needed if fetched < 0 else fetched
    cache.last_use_s[file] = max(cache.last_use_s[file], reads.close_s[i])
    heuristics.note_read(cache.own, file, had != ABSENT)
    cache.open_until_s[file] = max(cache.open_until_s[file], reads.close_s[i])
    if cache.delays.seen_s:
        enter(cache.agenda, now_s + cache.delays.seen_s, what(SEEN, i))
    else:
        _see(cache, order, reads, i)


@inner
def _see(cache: Cache, order: Followed, reads: Reads, i: int) -> None:
    """A read becomes known to the steward, and whether its file is on disk."""
    file, at_s, close_s = wide(reads.item[i]), reads.time_s[i], reads.close_s[i]
    was_held = order_of.bytes_on_disk(file, *order) >= 0
    access = Read(file, reads.reader[i], 1.0, float(at_s), float(at_s))
    order_of.read(Event(access, was_held), cache.learnt, *order)
    if cache.held[file] != ABSENT:
        order_of.store(file, cache.held[file], *order)
    if close_s > at_s:
        _open(cache, file)
        enter(cache.agenda, close_s, what(CLOSED, file))
    _look_later(cache, at_s)


@inner
def _fetch(cache: Cache, order: Followed, file: int, needed: int, now_s: int) -> int:
    """Bring the first `needed` bytes if there is room, or can be; the bytes that came, else -1."""
    sums, has = cache.sums, cache.held[file] != ABSENT
    if needed > cache.capacity:
        return -1
    n_bytes = needed - max(0, cache.held[file])
    if not cache.delays.look_s:
        if has:  # what it has on disk stays
            _open(cache, file)
        _look(cache, order, now_s, n_bytes)
        if has:
            _close(cache, order, file)
    if sums[USED] + n_bytes > cache.capacity:
        _purge(cache, order, sums[USED] + n_bytes - cache.capacity, now_s, file)
    if sums[USED] + n_bytes > cache.capacity:
        return -1
    cache.held[file] = needed
    sums[USED] += n_bytes
    sums[INFLOW] += n_bytes
    heuristics.store(cache.own, file, needed)
    sums[PEAK] = max(sums[PEAK], sums[USED])
    return int(n_bytes)


@bare
def carry_out(cache: Cache, order: Followed, unpinned: IntArray, coming: IntArray, now_s: int) -> None:
    """A plan is there: let go what it unpinned, make room for what it prefetches, and begin to fetch that."""
    for file in unpinned:
        order_of.may_go(wide(file), *order)
    if cache.delays.look_s:
        n_bytes = 0
        for file in coming:
            n_bytes += cache.size[file]
        _look(cache, order, now_s, n_bytes)
    for file in coming:
        if cache.delays.fetch_s:
            enter(cache.agenda, now_s + cache.delays.fetch_s, what(COMES, file))
        else:
            _come(cache, order, file, now_s)


@inner
def _come(cache: Cache, order: Followed, file: int, now_s: int) -> None:
    """A file that a plan prefetches comes, unless a job has brought it; it is known at once."""
    size = cache.size[file]
    if cache.held[file] != ABSENT or _fetch(cache, order, file, size, now_s) < 0:
        return
    at = cache.sums[N_CAME]
    cache.unread[file] = at
    cache.came[at, CAME_S], cache.came[at, BYTES], cache.came[at, ENDED_S] = now_s, size, NOT_YET
    cache.sums[N_CAME] += 1
    cache.away[file] = False
    cache.last_use_s[file] = now_s
    order_of.store(file, cache.held[file], *order)
    _look_later(cache, now_s)


@inner
def _look_later(cache: Cache, at_s: int) -> None:
    if cache.delays.look_s and not cache.sums[IS_LOOK_DUE]:
        cache.sums[IS_LOOK_DUE] = 1
        enter(cache.agenda, at_s + cache.delays.look_s, what(LOOK, 0))


@inner
def _look(cache: Cache, order: Followed, now_s: int, need_bytes: int) -> None:
    """Evict what is above the target by the disk itself, as far as it is known and not yet on its way."""
    sums = cache.sums
    sums[IS_LOOK_DUE] = 0
    over = sums[USED] - sums[LEAVING] + need_bytes - cache.target
    for victim in cache.victim[: _victims(cache, order, over, now_s)]:
        file = wide(victim)
        n_bytes = max(0, order_of.bytes_on_disk(file, *order))
        sums[LEAVING] += n_bytes
        _open(cache, file)  # no victim again while it is on its way
        cache.leaving[file], cache.by_plan[file] = n_bytes, cache.is_first[file]
        if cache.delays.effect_s:
            enter(cache.agenda, now_s + cache.delays.effect_s, what(GOES, file))
        else:
            _go(cache, order, file, now_s)


@inner
def _victims(cache: Cache, order: Followed, n_bytes: int, now_s: int) -> int:
    """Write the files that should go to `victim`, until their bytes are enough; how many."""
    first, spare, n = cache.victim, cache.spare, 0
    for file in cache.first:
        if not cache.is_first[file]:
            continue
        if n_bytes <= 0:
            return n
        on_disk = order_of.bytes_on_disk(file, *order)
        if on_disk >= 0 and not spare[file]:
            first[n] = file
            n += 1
            n_bytes -= on_disk
    for file in first[:n]:
        spare[file] = True
    eviction = Eviction(max(0, n_bytes), float(now_s), cache.held, spare)
    n_others = order_of.victims(Ask(eviction, first[n:]), cache.learnt, *order)
    for file in first[:n]:
        spare[file] = False
        order_of.may_go(wide(file), *order)
    return n + n_others


@inner
def _go(cache: Cache, order: Followed, file: int, now_s: int) -> None:
    """An eviction takes effect, unless the file is open."""
    cache.sums[LEAVING] -= cache.leaving[file]
    _close(cache, order, file)
    if cache.held[file] != ABSENT and cache.open_until_s[file] <= now_s:
        cache.away[file] |= cache.by_plan[file]
        _remove(cache, order, file, now_s)


@inner
def _purge(cache: Cache, order: Followed, n_bytes: int, now_s: int, read: int) -> None:
    """The cache's own purge: the longest unread files that are neither open nor `read` now.

    Pins are touched at each boundary, so they go last.
    """
    for takes_pins in (False, True):
        file = oldest(cache.own.queues, ALL)
        while n_bytes > 0 and file >= 0:
            gone, file = file, newer(cache.own.queues, file)
            if gone != read and cache.open_until_s[gone] <= now_s and (takes_pins or not cache.pinned[gone]):
                n_bytes -= cache.held[gone]
                _remove(cache, order, gone, now_s)


@inner
def _remove(cache: Cache, order: Followed, file: int, now_s: int) -> None:
    _end(cache, file, now_s, False)
    cache.sums[USED] -= cache.held[file]
    cache.held[file] = ABSENT
    heuristics.drop(cache.own, file)
    if order_of.bytes_on_disk(file, *order) >= 0:
        order_of.drop(file, *order)
    cache.is_first[file] = False
    if cache.pinned[file]:
        cache.pinned[file] = False
        cache.spare[file] = cache.opens[file] > 0  # it is not on disk: it may go once it comes again


@inner
def _end(cache: Cache, file: int, now_s: int, is_read: bool) -> None:
    """A file that came was read or left; only its first end counts."""
    at = cache.unread[file]
    if at >= 0:
        cache.came[at, ENDED_S], cache.came[at, IS_READ] = now_s, is_read
        cache.unread[file] = -1


@inner
def _open(cache: Cache, file: int) -> None:
    cache.opens[file] += 1
    cache.spare[file] = True


@inner
def _close(cache: Cache, order: Followed, file: int) -> None:
    cache.opens[file] = max(0, cache.opens[file] - 1)
    cache.spare[file] = cache.opens[file] > 0 or cache.pinned[file]
    if not cache.spare[file]:
        order_of.may_go(file, *order)
