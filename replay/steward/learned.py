"""The learned order: of a sample of the files on disk, the least valuable goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.jit import bare, direct
from features.stream.state import Files, Read, new_state, update
from replay.kernels.heuristics import LRU
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
from replay.policies.learned import Order
from replay.steward.order import FEWEST, MOST_BYTES, EvictionOrder, HeuristicOrder, extend, larger, n_known


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
