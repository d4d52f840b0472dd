"""The policies that drive a steward through a trace, by name; a kernel and a loop give the same hits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import bare
from features.results import STEWARD
from features.stream.state import Read, new_state
from replay.access_context import NO_QUEUE, AccessContext, check_fits
from replay.kernels import auto as orders
from replay.kernels import heuristics as kinds
from replay.kernels.accesses import Part
from replay.kernels.auto import NOW_S, Auto, Learnt, Room, new_auto
from replay.kernels.heuristics import (
    LRU,
    Heuristic,
    drop,
    is_held,
    new_heuristic,
    note_read,
    store,
    used_bytes,
    victims,
)
from replay.kernels.scored_files import Eviction, Known, expect, no_values
from replay.policies.learned import Accesses, Learned, Order, QueueFeed
from replay.policies.policy import PartPolicy, Policy, Served, ServedWithPrefetch
from replay.policies.queues import lru
from replay.steward import ORDERS, EvictionOrder, new_order
from replay.steward.delayed_cache import NO_DELAY, DelayedCache, Delays, Plans
from replay.steward.learned import Sampling
from replay.steward.order import LearntOrders
from replay.trace import Trace


class Replayed:
    """The policy: `order` makes the order for a capacity. When it is late, the cache's own LRU makes room.

    Files are fetched whole, as a `Policy`; `InBlocks` fetches what is read of them. `plans`: what
    acts on the same cache, None: nothing.
    """

    def __init__(
        self,
        context: AccessContext,
        order: Callable[[int], EvictionOrder],
        delays: Delays = NO_DELAY,
        plans: Plans | None = None,
    ) -> None:
        self._context, self._order, self._delays, self._plans = context, order, delays, plans

    def __call__(self, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int | ServedWithPrefetch:
        """Replay, marking hits; the peak usage in bytes. Raises InputError."""
        cache = self._cache(trace, capacity_bytes)
        reads = cache.serve(trace.size_bytes[trace.item], self._context.queued)
        np.greater_equal(reads.had, reads.needed, out=hit)
        if self._plans is None:
            return cache.peak_bytes
        return ServedWithPrefetch(cache.peak_bytes, cache.prefetched(reads))

    def _cache(self, trace: Trace, capacity_bytes: int) -> DelayedCache:
        """An empty cache for the files of `trace`, with its steward. Raises InputError."""
        check_fits(self._context, trace)
        order = self._order(capacity_bytes)
        return DelayedCache(order, self._context, trace, capacity_bytes, self._delays, plans=self._plans)


class InBlocks(Replayed):
    """The policy for files that are fetched by `block_bytes`, as far as they are read, from the beginning."""

    def __init__(
        self,
        context: AccessContext,
        order: Callable[[int], EvictionOrder],
        delays: Delays = NO_DELAY,
        *,
        block_bytes: int,
    ) -> None:
        super().__init__(context, order, delays)
        self._block_bytes = block_bytes

    def serve(self, trace: Trace, capacity_bytes: int) -> Served:
        """Replay, by the bytes that each access reads. Raises InputError."""
        cache = self._cache(trace, capacity_bytes)
        asked, needed = _requests(trace, self._block_bytes)
        reads = cache.serve(needed, NO_QUEUE)
        had, fetched = reads.had, reads.fetched
        on_disk = np.maximum(had, 0)
        served = np.minimum(asked, on_disk)
        is_kept = fetched >= 0
        missing = np.where(is_kept, fetched, asked - served)
        return Served(cache.peak_bytes, asked, served, missing, had >= needed)


def _requests(trace: Trace, block_bytes: int) -> tuple[IntArray, IntArray]:
    """Bytes that each access asks for, and those of the blocks that serve it, int64[n] each."""
    sizes = trace.size_bytes[trace.item]
    asked = sizes if trace.read_bytes is None else trace.read_bytes
    return asked, np.minimum(sizes, -(-asked // block_bytes) * block_bytes)


LEARNED, AUTO, DATASET_LRU = "learned", f"{STEWARD}-auto", f"{STEWARD}-dataset-lru"
STEWARDS: Mapping[str, str] = MappingProxyType(
    {STEWARD: LEARNED, **{f"{STEWARD}-{name}": name for name in ORDERS if name != LEARNED}}
)
"""Orders of eviction by the name of the policy that follows them."""


def steward_policy(
    name: str,
    context: AccessContext,
    learned: Sequence[Order] = (),
    *,
    delays: Delays = NO_DELAY,
    block_bytes: int | None = None,
    plans: Plans | None = None,
) -> Policy | PartPolicy:
    """The policy `name` of `STEWARDS` on the accesses of `context`.

    `learned`: the orders it may follow, by the time at which each begins; without any, `steward` is LRU in
    the kernel and an error in the loop. Without delays and plans, a kernel replays. A loop replays all else,
    access by access; where both can, their hits are equal. `block_bytes`: files are
    fetched by it as far as they are read; what queues say is not heeded then.
    Calls raise ConfigError, InputError.
    """
    if block_bytes is not None:
        return InBlocks(context, _order(name, context, learned), delays, block_bytes=block_bytes)
    if delays == NO_DELAY and plans is None and name in _KERNELS:
        return _KERNELS[name](context, learned)
    return Replayed(context, _order(name, context, learned), delays, plans)


_KERNELS: Mapping[str, Callable[[AccessContext, Sequence[Order]], Policy]] = MappingProxyType(
    {
        STEWARD: Learned,
        f"{STEWARD}-lru": lambda *_: lru,
        f"{STEWARD}-s3fifo": lambda context, _: partial(serve_by, kinds.S3FIFO, context),
        DATASET_LRU: lambda context, _: partial(serve_by, kinds.DATASET_LRU, context),
        AUTO: lambda context, learned: partial(serve_auto, learned, context),
    }
)


def _order(name: str, context: AccessContext, learned: Sequence[Order]) -> Callable[[int], EvictionOrder]:
    n_files = context.files.dataset.size
    return lambda capacity_bytes: new_order(STEWARDS[name], capacity_bytes, learned, n_files=n_files)


class Serving(NamedTuple):
    """Accesses by a cache of `capacity` bytes, and `size` of each file, int64[m]; `hit`: bool[n].

    `peak`: int64[1], most bytes on disk; `victim`: int32[m], victims; `nothing`: bool[0].
    """

    accesses: Accesses
    capacity: int
    size: IntArray
    hit: BoolArray
    peak: IntArray
    victim: Ids
    nothing: BoolArray


def serve_by(kind: int, context: AccessContext, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Replay a heuristic of `kind`, marking hits; the peak usage in bytes. Raises InputError."""
    check_fits(context, trace)
    order = new_heuristic(kind, capacity_bytes, trace.n_items, context.n_datasets)
    if kind == kinds.DATASET_LRU:
        order = order._replace(dataset=context.files.dataset)
    serving = _serving(context, trace, capacity_bytes, hit)
    _serve_heuristic(order, serving)
    return int(serving.peak[0])


def serve_auto(
    learned: Sequence[Order], context: AccessContext, trace: Trace, capacity_bytes: int, hit: BoolArray
) -> int:
    """Replay the order that misses the fewest bytes, marking hits; the peak usage in bytes.

    `learned`: by the time at which each begins; nothing: the choice is among heuristics. Raises InputError.
    """
    check_fits(context, trace)
    serving, learnt = _serving(context, trace, capacity_bytes, hit), LearntOrders(learned)
    auto = _auto(learned, context, trace, capacity_bytes)
    feed = QueueFeed(context.queued, np.zeros(1, np.int64))
    begins = np.searchsorted(trace.time_s, [order.from_s for order in learned]).tolist()
    for at, (start, stop) in enumerate(pairwise([0, *begins, trace.n_accesses]), start=-1):
        _serve_auto(auto, learnt.number(at), feed, serving, Part(start, stop))
    return int(serving.peak[0])


def _serving(context: AccessContext, trace: Trace, capacity_bytes: int, hit: BoolArray) -> Serving:
    return Serving(
        Accesses(trace.time_s, trace.item, context.reader),
        capacity_bytes,
        trace.size_bytes,
        hit,
        np.zeros(1, np.int64),
        np.empty(trace.n_items, np.int32),
        np.zeros(0, np.bool_),
    )


def _auto(learned: Sequence[Order], context: AccessContext, trace: Trace, capacity_bytes: int) -> Auto:
    """An empty cache that knows all files."""
    sampling, n_files = Sampling(trace.n_items), trace.n_items if learned else 0
    sample = sampling.of(trace.n_items)
    known = Known(new_state(n_files, context.n_datasets), context.files, no_values(n_files))
    auto = new_auto(
        capacity_bytes,
        sampling.share,
        Room(trace.n_items, sample.size, context.n_datasets),
        known,
        learns=bool(learned),
        proven_from_s=learned[0].from_s if learned else np.inf,
    )
    dataset = context.files.dataset
    auto.takes[:] = trace.size_bytes
    auto.sample.file[:], auto.sample.place[sample] = sample, np.arange(sample.size)
    auto.heuristics[kinds.DATASET_LRU].dataset[:] = dataset
    auto.shadows.plain[kinds.DATASET_LRU].order.dataset[:] = dataset[sample]
    return auto


@bare
def _serve_heuristic(order: Heuristic, serving: Serving) -> None:
    item, victim = serving.accesses.item, serving.victim
    for i in range(item.size):
        file = item[i]
        size, was_held = serving.size[file], is_held(order, file)
        fits = size <= serving.capacity
        if was_held:
            serving.hit[i] = True
        elif fits:
            missing = used_bytes(order) + size - serving.capacity
            for gone in victim[: victims(order, missing, serving.nothing, victim)]:
                drop(order, gone)
        note_read(order, file, was_held)
        if fits:
            store(order, file, size)
            serving.peak[0] = max(serving.peak[0], used_bytes(order))


@bare
def _serve_auto(auto: Auto, learnt: Learnt, feed: QueueFeed, serving: Serving, part: Part) -> None:
    accesses, victim, lru = serving.accesses, serving.victim, auto.heuristics[LRU]
    for i in range(part.start, part.stop):
        file, now_s = accesses.item[i], float(accesses.time_s[i])
        _follow_queues(auto, feed, now_s)
        size, was_held = serving.size[file], is_held(lru, file)
        fits = size <= serving.capacity
        if was_held:
            serving.hit[i] = True
        elif fits:
            missing = used_bytes(lru) + size - serving.capacity
            eviction = Eviction(missing, now_s, auto.valued.n_bytes, serving.nothing)
            for gone in victim[: orders.victims(auto, learnt, eviction, victim)]:
                orders.removed(auto.heuristics, auto.valued, gone)
        orders.read(auto, learnt, Read(file, accesses.reader[i], 1.0, now_s, now_s), was_held)
        if fits:
            orders.stored(auto, file, size)
            serving.peak[0] = max(serving.peak[0], used_bytes(lru))


@bare
def _follow_queues(auto: Auto, feed: QueueFeed, now_s: float) -> None:
    """Follow the entries of queues that are known by `now_s`, if the order learns."""
    queued, n = feed
    while n[0] < queued.at_s.size and queued.at_s[n[0]] <= now_s:
        if auto.known.values.due_s.size:
            expect(auto.known, queued.file[n[0]], queued.due_s[n[0]], auto.clock[NOW_S])
        n[0] += 1
