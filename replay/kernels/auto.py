"""The order that misses the fewest bytes now: shadows of each run on a sample of the files.

LRU is followed, then a proven learned order from its beginning, until another's shadow has missed less.
Beside the learned order one competes that follows recency by half: it is never far from LRU, and often
better where what was learned holds no more. Every order is kept up to date with the cache, so that it can be
followed from one victim to the next.
"""

from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray, Ids, IntArray
from features.common.jit import bare, inner, narrow, wide
from features.stream.state import Read, update
from replay.kernels import heuristics, shadow
from replay.kernels.chooser import FOLLOWED, Chooser, count, new_chooser, trust
from replay.kernels.heuristics import (
    LRU,
    Heuristic,
    drop,
    is_held,
    new_heuristic,
    note_read,
    store,
)
from replay.kernels.scored_files import (
    Disk,
    Eviction,
    Known,
    Rule,
    Values,
    choose,
    empty_disk,
    insert,
    put_back,
    remove,
)
from replay.kernels.shadow import Inventory, Shadow, new_shadow

N_HEURISTICS = len(heuristics.NAMES)
LEARNED = N_HEURISTICS
NAMES = (*heuristics.NAMES, "learned", "half-learned")
SHADOWS = 2
"""Entries of Auto.begun: of the learned orders of the cache, and from here on of those of the shadows."""
NOT_SAMPLED = -1
# Entries of Auto.clock.
NOW_S, PROVEN_FROM_S = range(2)


class Learnt(NamedTuple):
    """The learned order that is followed now, and its index `at`; -1: none has begun."""

    at: int
    rule: Rule


class Valued(NamedTuple):
    """The disk of a learned order, and the bytes of its `m` files, int64[m]."""

    disk: Disk
    n_bytes: IntArray


class Sample(NamedTuple):
    """The sampled files: int32[k] in `file`; `place`: int32[m], each file's index there, or NOT_SAMPLED."""

    place: Ids
    file: Ids


class Shadows(NamedTuple):
    """Caches of `capacity_bytes` that make room at each read: of heuristics for files by their numbers in the
    sample, of learned orders by those of all. `used_bytes`: int64[2], of these.
    """

    capacity_bytes: int
    plain: tuple[Shadow, Shadow, Shadow]
    valued: tuple[Valued, Valued]
    used_bytes: IntArray


class Auto(NamedTuple):
    """Orders of one disk, and their shadows. `takes`: int64[m], bytes of each file, on disk or not.

    `begun`: int64[4], the number of the learned order that each one follows, see `SHADOWS`; `clock`:
    float64[2], the latest read, and when learned orders are trusted.
    """

    heuristics: tuple[Heuristic, Heuristic, Heuristic]
    valued: Valued
    known: Known
    takes: IntArray
    begun: IntArray
    clock: FloatArray
    sample: Sample
    shadows: Shadows
    chooser: Chooser


class Room(NamedTuple):
    """Numbers of files, of those in the sample, and of datasets."""

    files: int
    sampled: int
    datasets: int


def new_auto(
    capacity_bytes: int, share: float, room: Room, known: Known, *, learns: bool, proven_from_s: float
) -> Auto:
    """The orders for an empty cache; `share`: the share of files that the shadows sample."""
    shadow_bytes = int(capacity_bytes * share)
    n_files = room.files if learns else 0
    first, second, third = (
        new_shadow(order, shadow_bytes) for order in _all(shadow_bytes, room.sampled, room.datasets)
    )
    return Auto(
        _all(capacity_bytes, room.files, room.datasets),
        no_valued(n_files),
        known,
        np.zeros(room.files, np.int64),
        np.full(4, -1, np.int64),
        np.array([-np.inf, proven_from_s]),
        Sample(np.full(room.files, NOT_SAMPLED, np.int32), np.zeros(room.sampled, np.int32)),
        Shadows(
            shadow_bytes,
            (first, second, third),
            (no_valued(n_files), no_valued(n_files)),
            np.zeros(2, np.int64),
        ),
        new_chooser(len(NAMES) if learns else N_HEURISTICS, shadow_bytes),
    )


def no_valued(n_files: int) -> Valued:
    """Room for files, with none on disk."""
    return Valued(empty_disk(n_files), np.zeros(n_files, np.int64))


def _all(capacity_bytes: int, n_files: int, n_datasets: int) -> tuple[Heuristic, Heuristic, Heuristic]:
    first, second, third = (
        new_heuristic(kind, capacity_bytes, n_files, n_datasets) for kind in range(N_HEURISTICS)
    )
    return first, second, third


@bare
def read(auto: Auto, learnt: Learnt, access: Read, was_held: bool) -> None:
    """Count a read of a file, which `was_held` or not."""
    file, clock = access.item, auto.clock
    if access.at_s >= clock[PROVEN_FROM_S]:
        trust(auto.chooser, LEARNED)
        clock[PROVEN_FROM_S] = np.inf
    place, n_bytes = wide(auto.sample.place[file]), auto.takes[file]
    if place != NOT_SAMPLED:
        missing = auto.chooser.missing
        # LRU's comes last: it is what the learned ones ask before their first order.
        for k in range(missing.size - 1, -1, -1):
            if k < N_HEURISTICS:
                had = shadow.serve(auto.shadows.plain[k], place, n_bytes)
            else:
                had = _serve(auto, learnt, k, file, access.at_s)
            missing[k] = 0 if had else n_bytes
        count(auto.chooser, access.at_s)
    for order in auto.heuristics:
        note_read(order, file, was_held)
    if _learns(auto):
        begin(auto.begun, 0, learnt.at, auto.known.values)
        clock[NOW_S] = max(clock[NOW_S], access.at_s)
        known = auto.known
        update(known.state, known.files, Read(narrow(file), access.reader, 1.0, access.at_s, clock[NOW_S]))
        begin(auto.begun, 1, learnt.at, auto.known.values)


@bare
def stored(auto: Auto, file: int, n_bytes: int) -> None:
    """A file has so many bytes on disk from now on."""
    auto.takes[file] = n_bytes
    for order in auto.heuristics:
        store(order, file, n_bytes)
    if _learns(auto):
        store_valued(auto.valued, file, n_bytes)
    place = wide(auto.sample.place[file])
    if place != NOT_SAMPLED:
        for sampled in auto.shadows.plain:
            shadow.fill(sampled, place, n_bytes)
        for k in range(N_HEURISTICS, auto.chooser.missing.size):
            _fill(auto.shadows, k - N_HEURISTICS, file, n_bytes)


@bare
def take(auto: Auto, learnt: Learnt, inventory: Inventory, before: IntArray) -> None:
    """Count the files of an inventory; `before`: int64[n], gets what each had on disk, -1: nothing."""
    held = auto.heuristics[LRU]
    for k in range(inventory.file.size):
        file, at_s = inventory.file[k], inventory.at_s[k]
        was_held = is_held(held, file)
        before[k] = held.queues.n_bytes[file] if was_held else -1
        if inventory.is_read[k]:
            read(auto, learnt, Read(file, 0, 1.0, at_s, at_s), was_held)
        stored(auto, file, inventory.n_bytes[k])


@bare
def removed(orders: tuple[Heuristic, Heuristic, Heuristic], valued: Valued, file: int) -> None:
    """A file is not on disk any more. `orders`, `valued`: those of an `Auto`, which is large to pass."""
    for order in orders:
        drop(order, file)
    if valued.disk.place.size and valued.disk.place[file] >= 0:
        remove(valued.disk, file)


@bare
def may_go(orders: tuple[Heuristic, Heuristic, Heuristic], valued: Valued, file: int) -> None:
    """A file need not stay any more. `orders`, `valued`: see `removed`."""
    heuristics.may_go(orders[LRU], file)
    if valued.disk.place.size:
        put_back(valued.disk, file)


@bare
def victims(auto: Auto, learnt: Learnt, eviction: Eviction, victim: Ids) -> int:
    """Write the victims of the order that is followed to `victim`; how many. See `heuristics.victims`."""
    followed = auto.chooser.state[FOLLOWED]
    if followed >= N_HEURISTICS:
        begin(auto.begun, followed - N_HEURISTICS, learnt.at, auto.known.values)
        if auto.begun[followed - N_HEURISTICS] >= 0:
            rule = _rule(learnt, followed)
            return choose(auto.valued.disk, auto.known, rule, eviction, victim)
        followed = LRU
    return heuristics.victims(auto.heuristics[followed], eviction.n_bytes, eviction.spare, victim)


@inner
def _learns(auto: Auto) -> bool:
    return bool(auto.chooser.missing.size > N_HEURISTICS)


@inner
def _rule(learnt: Learnt, order: int) -> Rule:
    rule = learnt.rule
    return Rule(rule.models, 1.0 if order == LEARNED else 0.5, rule.block)


@bare
def begin(begun: IntArray, order: int, at: int, values: Values) -> None:
    """Let `order` begin the newest learned order, and forget the values by the one before."""
    if begun[order] < at:
        begun[order] = at
        values.at_s[:] = np.nan


@inner
def _serve(auto: Auto, learnt: Learnt, k: int, file: int, at_s: float) -> bool:
    """Serve a read by the shadow of a learned order; whether it had the file."""
    shadows, n_bytes, order = auto.shadows, auto.takes[file], k - N_HEURISTICS
    valued, used = shadows.valued[order], shadows.used_bytes
    has = valued.disk.place[file] >= 0
    comes = not has and n_bytes <= shadows.capacity_bytes
    missing = used[order] + n_bytes - shadows.capacity_bytes
    if comes and missing > 0:
        begin(auto.begun, SHADOWS + order, learnt.at, auto.known.values)
        n = _shadow_victims(auto, learnt, k, missing, at_s)
        for victim in shadows.plain[LRU].victim[:n]:
            gone = wide(victim)
            if valued.disk.place[gone] >= 0:
                used[order] -= valued.n_bytes[gone]
                remove(valued.disk, gone)
    begin(auto.begun, SHADOWS + order, learnt.at, auto.known.values)
    if comes:
        used[order] += n_bytes
        store_valued(valued, file, n_bytes)
    return bool(has)


@inner
def _shadow_victims(auto: Auto, learnt: Learnt, k: int, n_bytes: int, at_s: float) -> int:
    """Write the victims of the shadow of a learned order to LRU's `victim`; how many."""
    lru, order = auto.shadows.plain[LRU], k - N_HEURISTICS
    if auto.begun[SHADOWS + order] >= 0:
        valued = auto.shadows.valued[order]
        eviction = Eviction(n_bytes, at_s, valued.n_bytes, lru.nothing)
        return choose(valued.disk, auto.known, _rule(learnt, k), eviction, lru.victim)
    n = heuristics.victims(lru.order, n_bytes, lru.nothing, lru.victim)
    for at in range(n):
        lru.victim[at] = auto.sample.file[lru.victim[at]]
    return n


@inner
def _fill(shadows: Shadows, order: int, file: int, n_bytes: int) -> None:
    """See `shadow.fill`."""
    valued, used = shadows.valued[order], shadows.used_bytes
    has = valued.disk.place[file] >= 0
    before = valued.n_bytes[file] if has else 0
    if has or used[order] + n_bytes <= shadows.capacity_bytes:
        used[order] += n_bytes - before
        store_valued(valued, file, n_bytes)


@bare
def store_valued(valued: Valued, file: int, n_bytes: int) -> None:
    """A file has so many bytes on disk from now on."""
    if valued.disk.place[file] < 0:
        insert(valued.disk, file)
    valued.n_bytes[file] = n_bytes
