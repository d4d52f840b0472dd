"""Eviction at each access by a learned order: of a sample of the files on disk, the least valuable goes.

Before the first order begins, the least recently used file goes.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import bare, inner
from features.stream.state import Read, new_state, update
from replay.access_context import AccessContext, QueuedReads, check_fits
from replay.kernels.accesses import AHEAD, Part, fetch
from replay.kernels.heuristics import ALL
from replay.kernels.links import Queues, append, leave, no_queues, oldest, to_newest
from replay.kernels.scored_files import (
    PEAK,
    USED,
    Disk,
    Known,
    Rule,
    empty_disk,
    expect,
    insert,
    least_valuable,
    new_rule,
    no_values,
    remove,
)
from replay.kernels.trees import HorizonModels
from replay.trace import Trace


class Accesses(NamedTuple):
    """Accesses in time order: `time_s` int64[n], `item` int32[n], `reader` int64[n]."""

    time_s: IntArray
    item: Ids
    reader: IntArray


class Cache(NamedTuple):
    """A cache of `capacity` bytes, and `size` of each file, int64[m]; `recency`: files by their last use."""

    capacity: int
    size: IntArray
    disk: Disk
    recency: Queues


class QueueFeed(NamedTuple):
    """Entries of batch queues, and the number of those that were followed, `n`: int64[1]."""

    queued: QueuedReads
    n: IntArray


class ScoredFiles(NamedTuple):
    """An order by value, with its knowledge of the files; `spare`: bool[0], no file is spared."""

    known: Known
    rule: Rule
    spare: BoolArray
    feed: QueueFeed


@bare
def serve_lru(cache: Cache, accesses: Accesses, part: Part, hit: BoolArray) -> None:
    """Serve accesses, marking hits: where a file does not fit, the least recently used ones go."""
    item, place = accesses.item, cache.disk.place
    for i in range(part.start, part.stop):
        if i + AHEAD < part.stop:
            fetch(place, item[i + AHEAD])
            fetch(cache.size, item[i + AHEAD])
        if _is_served(cache, item[i]):
            hit[i] = True
        elif cache.size[item[i]] <= cache.capacity:
            while cache.disk.sums[USED] + cache.size[item[i]] > cache.capacity:
                _take_out(cache, oldest(cache.recency, ALL))
            _take_in(cache, item[i])


@bare
def serve_valued(cache: Cache, order: ScoredFiles, accesses: Accesses, part: Part, hit: BoolArray) -> None:
    """Serve accesses, marking hits, and remember them: where a file does not fit, the least valuable go."""
    item, known = accesses.item, order.known
    for i in range(part.start, part.stop):
        _follow_queues(known, order.feed, float(accesses.time_s[i]))
        if _is_served(cache, item[i]):
            hit[i] = True
        elif cache.size[item[i]] <= cache.capacity:
            while cache.disk.sums[USED] + cache.size[item[i]] > cache.capacity:
                now_s = float(accesses.time_s[i])
                _take_out(cache, least_valuable(cache.disk, known, order.rule, order.spare, now_s))
            _take_in(cache, item[i])
        _remember(known, accesses, i)


@bare
def remember(known: Known, feed: QueueFeed, accesses: Accesses, part: Part) -> None:
    """Remember accesses that are served without what is known of the files."""
    for i in range(part.start, part.stop):
        _follow_queues(known, feed, float(accesses.time_s[i]))
        _remember(known, accesses, i)


@inner
def _follow_queues(known: Known, feed: QueueFeed, now_s: float) -> None:
    """Follow the entries of queues that are known by `now_s`."""
    queued, n = feed
    while n[0] < queued.at_s.size and queued.at_s[n[0]] <= now_s:
        expect(known, queued.file[n[0]], queued.due_s[n[0]], queued.at_s[n[0]])
        n[0] += 1


@inner
def _is_served(cache: Cache, file: int) -> bool:
    """Whether the file is on disk, where it is the newest from now on."""
    is_hit = cache.disk.place[file] >= 0
    if is_hit:
        to_newest(cache.recency, ALL, file, file)
    return bool(is_hit)


@inner
def _take_in(cache: Cache, file: int) -> None:
    insert(cache.disk, file, cache.size[file])
    append(cache.recency, ALL, file, cache.size[file])


@inner
def _take_out(cache: Cache, file: int) -> None:
    remove(cache.disk, file, cache.size[file])
    leave(cache.recency, file)


@inner
def _remember(known: Known, accesses: Accesses, i: int) -> None:
    now_s = float(accesses.time_s[i])
    update(known.state, known.files, Read(accesses.item[i], accesses.reader[i], 1.0, now_s, now_s))


_NOTHING = np.zeros(0, np.bool_)


class Order(NamedTuple):
    """An order from time `from_s` on: the value of a file is its hit rate by `models`."""

    from_s: float
    models: HorizonModels


class Learned:
    """The policy: LRU before the first order begins, then each order until the next one begins.

    `orders`: by the time at which each begins.
    """

    def __init__(self, context: AccessContext, orders: Sequence[Order]) -> None:
        self._context, self._orders = context, orders

    def __call__(self, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
        """Replay, marking hits; the peak usage in bytes. Raises InputError."""
        check_fits(self._context, trace)
        m = trace.n_items
        cache = Cache(capacity_bytes, trace.size_bytes, empty_disk(m), no_queues(m))
        state = new_state(trace.n_items, self._context.n_datasets)
        known = Known(state, self._context.files, no_values(trace.n_items))
        accesses = Accesses(trace.time_s, trace.item, self._context.reader)
        begins = np.searchsorted(trace.time_s, [order.from_s for order in self._orders]).tolist()
        edges = [*begins, trace.n_accesses]
        serve_lru(cache, accesses, Part(0, edges[0]), hit)
        feed = QueueFeed(self._context.queued, np.zeros(1, np.int64))
        remember(known, feed, accesses, Part(0, edges[0]))
        for order, (start, stop) in zip(self._orders, pairwise(edges), strict=True):
            known.values.at_s[:] = np.nan
            valued = ScoredFiles(known, new_rule(order.models), _NOTHING, feed)
            serve_valued(cache, valued, accesses, Part(start, stop), hit)
        return int(cache.disk.sums[PEAK])
