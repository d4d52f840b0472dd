"""Learned orders beside a live cache: the order by a model, and the best of it and heuristics."""

import math
from collections.abc import Sequence

import numpy as np

from features.common.arrays import BoolArray, IntArray, taken
from features.common.jit import direct
from features.stream.state import Files, Read, State, forget_all, new_state
from replay.kernels import auto as kernel
from replay.kernels import learned as of_model
from replay.kernels.auto import N_HEURISTICS, NAMES, NOT_SAMPLED, SHADOWS, Learnt, Room, new_auto
from replay.kernels.chooser import FOLLOWED
from replay.kernels.followed import Followed
from replay.kernels.heuristics import DATASET_LRU, LRU, new_heuristic
from replay.kernels.learned import new_learned
from replay.kernels.scored_files import N_HELD, Disk, Eviction, Known, expect, no_values
from replay.kernels.shadow import Inventory
from replay.policies.learned import Order
from replay.steward.order import (
    FEWEST,
    MOST_BYTES,
    ArrayOrder,
    LearntOrders,
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

    def _make_room(self, n_datasets: int) -> None:
        """Room for the files known, and for `n_datasets`."""
        state, files, values = self.known
        room, d_room = files.dataset.size, files.n_files.size
        n, d = larger(room, self.n_files), larger(d_room, n_datasets)
        if (n, d) == (room, d_room):
            return
        extend(state.file, n)
        for of_datasets in (state.dataset, state.passes, files.n_files):
            extend(of_datasets, d)
        forget_all(State(state.file[room:], state.dataset[d_room:], state.passes[d_room:]))
        for numbers in (files.dataset, files.tier):
            extend(numbers, n)
        for unknown in (files.size_bytes, files.rank):
            extend(unknown, n, -1)
        extend(values.log_rate, n)
        for never in (values.at_s, values.due_s, values.due_from_s):
            extend(never, n, np.nan)


_expect, _may_go_learned = direct(expect), direct(of_model.may_go)
_read_learned, _stored_learned = direct(of_model.read), direct(of_model.stored)
_removed_learned, _victims_learned = direct(of_model.removed), direct(of_model.victims)


class LearnedOrder(ArrayOrder):
    """Value by a model of the reads to come, from the time of the first of `orders` on; LRU before."""

    following = "learned"

    def __init__(self, orders: Sequence[Order]) -> None:
        """`orders`: by the time at which each begins."""
        self.learnt = LearntOrders(orders)
        self._history = AccessHistory()
        self._of = new_learned(FEWEST, self._history.known)

    @property
    def followed(self) -> Followed:
        return None, self._of, None

    def add(self, dataset: IntArray, tier: IntArray, size_bytes: IntArray) -> None:
        self._history.add(dataset, tier, size_bytes)
        if self._of.begun[0] < 0:
            make_room(self._of.lru, self._history.n_files, 0)
        elif self._of.lru.queues.queue.size:  # nobody asks it any more
            self._of = self._of._replace(lru=new_heuristic(LRU, 0, 0, 0))
        room = self._history.known.files.dataset.size
        extend(self._of.valued.n_bytes, room)
        make_room_on_disk(self._of.valued.disk, room)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        access = Read(file, reader, 1.0, float(at_s), float(at_s))
        _read_learned(self._of, self._at(at_s), access, is_held)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        _stored_learned(self._of, file, n_bytes)

    def removed(self, file: int) -> None:
        _removed_learned(self._of, file)

    def expect(self, file: int, due_s: float) -> None:
        _expect(self._of.known, file, float(due_s), float(self._of.clock[0]))

    def may_go(self, file: int) -> None:
        _may_go_learned(self._of, file)

    def bytes_on_disk(self, file: int) -> int | None:
        valued = self._of.valued
        return int(valued.n_bytes[file]) if valued.disk.place[file] >= 0 else None

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        valued = self._of.valued
        victim = np.empty(valued.disk.sums[N_HELD], np.int32)
        eviction = Eviction(min(n_bytes, MOST_BYTES), float(now_s), valued.n_bytes, spare)
        n = _victims_learned(self._of, self._at(now_s), eviction, victim)
        files: list[int] = victim[:n].tolist()
        return files

    def _at(self, now_s: float) -> Learnt:
        return self.learnt.at(now_s, int(self._of.begun[0]))


def make_room_on_disk(disk: Disk, n_files: int) -> None:
    """Make room for so many files."""
    extend(disk.place, n_files, -1)
    extend(disk.held, n_files)


_read, _stored, _removed = direct(kernel.read), direct(kernel.stored), direct(kernel.removed)
_take, _may_go, _victims = direct(kernel.take), direct(kernel.may_go), direct(kernel.victims)

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


class AutoOrder(ArrayOrder):
    """Follows the heuristic or the learned order whose shadow has missed the fewest bytes."""

    def __init__(
        self,
        capacity_bytes: int,
        learned: Sequence[Order] | None,
        n_files: int,
    ) -> None:
        """`learned`: None for a choice among heuristics; `n_files`: how many will be known, 0: a few."""
        self._sampling, self.learnt = Sampling(n_files), LearntOrders(learned or ())
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
    def followed(self) -> Followed:
        return None, None, self._of

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

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        learnt = self.learnt.at(at_s, int(self._of.begun[SHADOWS]))
        _read(self._of, learnt, Read(file, reader, 1.0, float(at_s), float(at_s)), is_held)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        _stored(self._of, file, n_bytes)

    def take_inventory(self, inventory: Inventory) -> IntArray:
        before = np.empty(inventory.file.size, np.int64)
        for learnt, part in self.learnt.parts(inventory, int(self._of.begun[SHADOWS])):
            _take(self._of, learnt, taken(inventory, part), before[part])
        return before

    def removed(self, file: int) -> None:
        _removed(self._of.heuristics, self._of.valued, file)

    def expect(self, file: int, due_s: float) -> None:
        if self._learns:
            _expect(self._of.known, file, float(due_s), float(self._of.clock[kernel.NOW_S]))

    def may_go(self, file: int) -> None:
        _may_go(self._of.heuristics, self._of.valued, file)

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
        n = _victims(of, self.learnt.at(now_s, begun), eviction, victim)
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
