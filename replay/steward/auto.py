"""The order that misses the fewest bytes now, beside a live cache; `replay.kernels.auto` has what it does."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.jit import direct
from features.stream.state import Read
from replay.kernels import auto as kernel
from replay.kernels.auto import (
    N_HEURISTICS,
    NAMES,
    NOT_SAMPLED,
    SHADOWS,
    Learnt,
    Room,
    new_auto,
)
from replay.kernels.chooser import FOLLOWED
from replay.kernels.heuristics import DATASET_LRU, LRU, Inventory
from replay.kernels.scored_files import Eviction, expect, new_rule
from replay.kernels.trees import no_models
from replay.policies.learned import Order
from replay.steward.learned import AccessHistory, make_room_on_disk
from replay.steward.order import (
    FEWEST,
    MOST_BYTES,
    EvictionOrder,
    bytes_held,
    extend,
    larger,
    make_room,
    make_room_in_shadow,
    n_known,
    room_for_victims,
)

_read, _stored, _removed = direct(kernel.read), direct(kernel.stored), direct(kernel.removed)
_take, _victims, _expect = direct(kernel.take), direct(kernel.victims), direct(expect)

MOST_SAMPLED = 2**17
"""Of more files, a half, a quarter, … stand for all."""
_GOLDEN, _WORD = 0x9E3779B97F4A7C15, 1 << 64


class Sampling:
    """Which files stand for all: `share` of them, by their numbers. `n_files`: how many there are, about."""

    def __init__(self, n_files: int) -> None:
        self.share = 1.0
        while n_files * self.share > MOST_SAMPLED:
            self.share /= 2
        self._below = int(self.share * _WORD)

    def of(self, n_files: int, first: int = 0) -> IntArray:
        """Those of files `first` … n - 1, ascending."""
        files = np.arange(first, n_files)
        if self._below == _WORD:
            return files
        return files[files.astype(np.uint64) * np.uint64(_GOLDEN) < np.uint64(self._below)]


class LearntOrders:
    """What was learned, by the time from which on it is followed."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self._orders, self._from_s = orders, [order.from_s for order in orders]
        self._known: dict[int, Learnt] = {}

    def at(self, now_s: float, begun: int = -1) -> Learnt:
        """What is followed at a time, or what has `begun` if that is later."""
        return self.number(max(begun, bisect_right(self._from_s, now_s) - 1))

    def parts(self, inventory: Inventory, begun: int) -> Iterator[tuple[Learnt, slice]]:
        """What is followed at the time of each file, with the files for which it is the same."""
        at = np.maximum(begun, np.searchsorted(self._from_s, inventory.at_s, side="right") - 1)
        ends = [0, *(np.flatnonzero(np.diff(at)) + 1).tolist(), at.size]
        for first, end in pairwise(ends):
            yield self.number(int(at[first])), slice(first, end)

    def number(self, at: int) -> Learnt:
        """One of the orders; -1: none."""
        if at not in self._known:
            models = self._orders[at].models if at >= 0 else no_models()
            self._known[at] = Learnt(at, new_rule(models))
        return self._known[at]


class AutoOrder(EvictionOrder):
    """Follows the heuristic or the learned order whose shadow has missed the fewest bytes."""

    def __init__(
        self,
        capacity_bytes: int,
        learned: Sequence[Order] | None,
        n_files: int,
    ) -> None:
        """`learned`: None for a choice among heuristics; `n_files`: how many will be known, 0: a few."""
        self._sampling, self._learnt = Sampling(n_files), LearntOrders(learned or ())
        self._history = AccessHistory()
        self._n_files = self._n_sampled = 0
        self._learns = bool(learned)
        self._of = new_auto(
            capacity_bytes,
            self._sampling.share,
            Room(FEWEST, FEWEST, FEWEST),
            self._history.known,
            learns=self._learns,
            proven_from_s=learned[0].from_s if learned else math.inf,
        )

    @property
    def following(self) -> str:
        """The order that is followed now."""
        return NAMES[self._of.chooser.state[FOLLOWED]]

    def add(self, dataset: IntArray, tier: IntArray, size_bytes: IntArray) -> None:
        of, first, n_files = self._of, self._n_files, self._n_files + dataset.size
        sampled = self._sampling.of(n_files, first)
        places = np.arange(self._n_sampled, self._n_sampled + sampled.size)
        self._n_files, self._n_sampled = n_files, self._n_sampled + sampled.size
        self._make_room(n_known(dataset))
        if self._learns:
            self._history.add(dataset, tier, size_bytes)
        of.takes[first:n_files] = np.maximum(0, size_bytes)
        of.heuristics[DATASET_LRU].dataset[first:n_files] = dataset
        of.sample.place[sampled], of.sample.file[places] = places, sampled
        of.shadows.plain[DATASET_LRU].order.dataset[places] = dataset[sampled - first]

    def resize(self, file: int, size_bytes: int) -> None:
        self._of.takes[file] = max(0, size_bytes)
        if self._learns:
            self._history.resize(file, size_bytes)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        learnt = self._learnt.at(at_s, int(self._of.begun[SHADOWS]))
        _read(self._of, learnt, Read(file, reader, 1.0, float(at_s), float(at_s)), is_held)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        _stored(self._of, file, n_bytes)

    def take_inventory(self, inventory: Inventory) -> IntArray:
        before = np.empty(inventory.file.size, np.int64)
        for learnt, part in self._learnt.parts(inventory, int(self._of.begun[SHADOWS])):
            _take(self._of, learnt, inventory.part(part), before[part])
        return before

    def removed(self, file: int) -> None:
        _removed(self._of.heuristics, self._of.valued, file)

    def expect(self, file: int, due_s: float) -> None:
        if self._learns:
            _expect(self._of.known, file, float(due_s), float(self._of.clock[kernel.NOW_S]))

    def bytes_on_disk(self, file: int) -> int | None:
        return bytes_held(self._of.heuristics[LRU], file)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """The victims of the order that is followed."""
        of = self._of
        followed = of.chooser.state[FOLLOWED]
        begun = int(of.begun[followed - N_HEURISTICS]) if followed >= N_HEURISTICS else -1
        victim = room_for_victims(of.heuristics[LRU])
        least = max(0, min(n_bytes, MOST_BYTES))
        eviction = Eviction(least, float(now_s), of.valued.n_bytes, spare)
        n = _victims(of, self._learnt.at(now_s, begun), eviction, victim)
        files: list[int] = victim[:n].tolist()
        return files

    def _make_room(self, n_datasets: int) -> None:
        """Room for the files known, those in the sample, and `n_datasets`."""
        of = self._of
        room = larger(of.takes.size, self._n_files)
        sampled = larger(of.sample.file.size, self._n_sampled)
        has_room = (room, sampled) == (of.takes.size, of.sample.file.size)
        if has_room and n_datasets <= len(of.heuristics[DATASET_LRU].ends):
            return
        extend(of.takes, room)
        extend(of.sample.place, room, NOT_SAMPLED)
        extend(of.sample.file, sampled)
        for order in of.heuristics:
            make_room(order, room, n_datasets)
        for shadow in of.shadows.plain:
            make_room_in_shadow(shadow, sampled, n_datasets)
        for valued in (of.valued, *of.shadows.valued) if self._learns else ():
            extend(valued.n_bytes, room)
            make_room_on_disk(valued.disk, room)
