"""Learned orders beside a live cache: the order by a model, and the best of it and heuristics."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.jit import bare, direct
from features.stream.state import Files, Read, new_state, update
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
from replay.kernels.scored_files import (
    N_HELD,
    Disk,
    Eviction,
    Known,
    Rule,
    choose,
    empty_disk,
    expect,
    insert,
    new_rule,
    no_values,
    remove,
)
from replay.kernels.trees import no_models
from replay.policies.learned import Order
from replay.steward.order import (
    FEWEST,
    MOST_BYTES,
    EvictionOrder,
    HeuristicOrder,
    bytes_held,
    extend,
    larger,
    make_room,
    make_room_in_shadow,
    n_known,
    room_for_victims,
)


class AccessHistory:
    """Files by number, from 0 in the order of `add`, and their reads. The arrays of `known` grow."""

    def __init__(self) -> None:
        self.n_files = 0
        self._now_s = -np.inf
        files = Files(
            dataset=np.zeros(FEWEST, np.int32),
            tier=np.zeros(FEWEST, np.int32),
            size_bytes=np.full(FEWEST, -1, np.int64),
            rank=np.full(FEWEST, -1, np.int32),
            n_files=np.zeros(FEWEST, np.int64),
            history_s=np.inf,
        )
        self.known = Known(new_state(FEWEST, FEWEST), files, no_values(FEWEST))

    def add(self, dataset: IntArray, tier: IntArray, size_bytes: IntArray) -> None:
        """Make files known."""
        first, self.n_files = self.n_files, self.n_files + dataset.size
        self._make_room(n_known(dataset))
        files, new = self.known.files, slice(first, self.n_files)
        files.dataset[new], files.tier[new], files.size_bytes[new] = dataset, tier, size_bytes

    def resize(self, file: int, size_bytes: int) -> None:
        """Correct a file's size."""
        self.known.files.size_bytes[file] = size_bytes

    def read(self, file: int, reader: int, at_s: float) -> None:
        """Count a read."""
        self._now_s = max(self._now_s, float(at_s))
        _note(self.known, Read(file, reader, 1.0, float(at_s), self._now_s))

    def expect(self, file: int, due_s: float) -> None:
        """Known work is expected to read the file at `due_s`; NaN: not any more."""
        _expect(self.known, file, float(due_s), self._now_s)

    def _make_room(self, n_datasets: int) -> None:
        """Room for the files known, and for `n_datasets`."""
        state, files, values = self.known
        room, d_room = files.dataset.size, files.n_files.size
        n, d = larger(room, self.n_files), larger(d_room, n_datasets)
        if (n, d) == (room, d_room):
            return
        unread, unscored = new_state(n - room, d - d_room), no_values(n - room)
        extend(state.file, n, unread.file)
        extend(state.dataset, d, unread.dataset)
        extend(state.passes, d, unread.passes)
        extend(files.n_files, d)
        for numbers in (files.dataset, files.tier):
            extend(numbers, n)
        for unknown in (files.size_bytes, files.rank):
            extend(unknown, n, -1)
        extend(values.log_rate, n, unscored.log_rate)
        extend(values.at_s, n, unscored.at_s)
        extend(values.due_s, n, unscored.due_s)
        extend(values.due_from_s, n, unscored.due_from_s)


@bare
def _note_read(known: Known, read: Read) -> None:
    update(known.state, known.files, read)


_note, _expect, _choose = direct(_note_read), direct(expect), direct(choose)
_insert, _remove = direct(insert), direct(remove)


class LearnedOrder(EvictionOrder):
    """Value by a model of the reads to come, from the time of the first of `orders` on; LRU before."""

    following = "learned"

    def __init__(self, orders: Sequence[Order]) -> None:
        """`orders`: by the time at which each begins."""
        self._orders = orders
        self._lru: HeuristicOrder | None = HeuristicOrder(LRU)
        self.history = AccessHistory()
        self._disk, self._bytes = empty_disk(FEWEST), np.zeros(FEWEST, np.int64)
        self._at = -1
        self._rule: Rule | None = None

    def add(self, dataset: IntArray, tier: IntArray, size_bytes: IntArray) -> None:
        if self._lru is not None:
            self._lru.add(dataset, tier, size_bytes)
        self.history.add(dataset, tier, size_bytes)

    def resize(self, file: int, size_bytes: int) -> None:
        self.history.resize(file, size_bytes)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        self._begin(at_s)
        if self._lru is not None:
            self._lru.read(file, reader, at_s, is_held=is_held)
        self.history.read(file, reader, at_s)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        if self._lru is not None:
            self._lru.stored(file, n_bytes, at_s)
        self._make_room()
        if self._disk.place[file] < 0:
            _insert(self._disk, file, n_bytes)
        self._bytes[file] = n_bytes

    def removed(self, file: int) -> None:
        if self._lru is not None:
            self._lru.removed(file)
        if self._holds(file):
            _remove(self._disk, file, self._bytes[file])

    def expect(self, file: int, due_s: float) -> None:
        self.history.expect(file, due_s)

    def bytes_on_disk(self, file: int) -> int | None:
        return int(self._bytes[file]) if self._holds(file) else None

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        rule = self._begin(now_s)
        if rule is None:
            assert self._lru is not None
            return self._lru.victims(n_bytes, now_s, spare)
        victim = np.empty(self._disk.sums[N_HELD], np.int32)
        eviction = Eviction(min(n_bytes, MOST_BYTES), float(now_s), self._bytes, spare)
        n = _choose(self._disk, self.history.known, rule, eviction, victim)
        files: list[int] = victim[:n].tolist()
        return files

    def _begin(self, now_s: float) -> Rule | None:
        """Begin the order of `now_s`, without values of the one before; its rule, None before the first."""
        while self._at + 1 < len(self._orders) and self._orders[self._at + 1].from_s <= now_s:
            self._at += 1
            self._lru, order = None, self._orders[self._at]
            self._rule = new_rule(order.models)
            self.history.known.values.at_s[:] = np.nan
        return self._rule

    def _holds(self, file: int) -> bool:
        return file < self._disk.place.size and bool(self._disk.place[file] >= 0)

    def _make_room(self) -> None:
        room = self.history.known.files.dataset.size
        extend(self._bytes, room)
        make_room_on_disk(self._disk, room)


def make_room_on_disk(disk: Disk, n_files: int) -> None:
    """Make room for so many files."""
    extend(disk.place, n_files, -1)
    extend(disk.held, n_files)


_read, _stored, _removed = direct(kernel.read), direct(kernel.stored), direct(kernel.removed)
_take, _victims = direct(kernel.take), direct(kernel.victims)

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
