"""Kernels that replay what a steward decides at each read, without delays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import bare
from features.stream.state import Read, new_state
from replay.access_context import AccessContext, check_fits
from replay.kernels import auto as orders
from replay.kernels.accesses import Part
from replay.kernels.auto import NOW_S, Auto, Learnt, Room, new_auto
from replay.kernels.heuristics import (
    DATASET_LRU,
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
from replay.policies.learned import Accesses, Order, QueueFeed
from replay.steward.auto import LearntOrders, Sampling
from replay.trace import Trace


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
    if kind == DATASET_LRU:
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
    auto.heuristics[DATASET_LRU].dataset[:] = dataset
    auto.shadows.plain[DATASET_LRU].order.dataset[:] = dataset[sample]
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
