"""Orders of eviction beside a live cache: their protocol, and those without a model.

`replay.kernels.heuristics` has what the latter do.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import direct
from replay.kernels import heuristics as kernel
from replay.kernels.auto import Learnt
from replay.kernels.followed import Followed
from replay.kernels.heuristics import (
    DATASET_LRU,
    GHOSTS,
    NAMES,
    S3FIFO,
    Heuristic,
    new_heuristic,
)
from replay.kernels.links import COUNT, ENDS
from replay.kernels.scored_files import new_rule
from replay.kernels.shadow import Inventory, Shadow
from replay.kernels.trees import no_models
from replay.policies.learned import Order


class LearntOrders:
    """What was learned, by the time from which on it is followed."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self._orders = orders
        self.begins_s = np.array([order.from_s for order in orders], np.float64)
        self._known: dict[int, Learnt] = {}

    def at(self, now_s: float, begun: int) -> Learnt:
        """What is followed at a time, or what has `begun` if that is later."""
        return self.number(max(begun, int(self.begins_s.searchsorted(now_s, side="right")) - 1))

    def parts(self, inventory: Inventory, begun: int) -> Iterator[tuple[Learnt, slice]]:
        """What is followed at the time of each file, with the files for which it is the same."""
        at = np.maximum(begun, self.begins_s.searchsorted(inventory.at_s, side="right") - 1)
        ends = [0, *(np.flatnonzero(np.diff(at)) + 1).tolist(), at.size]
        for first, end in pairwise(ends):
            yield self.number(int(at[first])), slice(first, end)

    def number(self, at: int) -> Learnt:
        """One of the orders; -1: none."""
        if at not in self._known:
            models = self._orders[at].models if at >= 0 else no_models()
            self._known[at] = Learnt(at, new_rule(models))
        return self._known[at]


class EvictionOrder(Protocol):
    """An order of eviction that follows a cache event by event.

    Files and datasets are dense numbers from 0. Events come in the order in which they become known; their
    own times may be older. `following`: the name of the order that is followed now.

    >>> order = HeuristicOrder(NAMES.index("lru"))
    >>> order.add(np.zeros(2, np.int64), np.zeros(2, np.int64), np.array([10, 20]))
    >>> for file, n_bytes, at_s in ((0, 10, 1.0), (1, 20, 2.0)):
    ...     order.read(file, 0, at_s, is_held=False)
    ...     order.stored(file, n_bytes, at_s)
    >>> order.victims(5, 3.0, np.zeros(2, np.bool_))
    [0]
    """

    @property
    def following(self) -> str: ...

    def add(self, dataset: IntArray, tier: IntArray, size_bytes: IntArray) -> None:
        """Make files known, numbered on from those known before. `size_bytes` -1: not known."""

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """Count a read. `reader`: `features.stream.state.task_number` or `user_number`, 0: nobody is named.

        `is_held`: whether the file was on disk, wholly or partly.
        """

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A file has so many bytes on disk from now on; it enters the order if it had none."""

    def take_inventory(self, inventory: Inventory) -> IntArray:
        """Read and store the files of an inventory, at once; the bytes that each had on disk, -1: none."""
        before = np.empty(inventory.file.size, np.int64)
        files = zip(*(column.tolist() for column in inventory), strict=True)
        for k, (file, n_bytes, at_s, is_read) in enumerate(files):
            on_disk = self.bytes_on_disk(file)
            before[k] = -1 if on_disk is None else on_disk
            if is_read:
                self.read(file, 0, at_s, is_held=on_disk is not None)
            self.stored(file, n_bytes, at_s)
        return before

    def removed(self, file: int) -> None:
        """A file is not on disk any more, whoever removed it."""

    def expect(self, file: int, due_s: float) -> None:
        """Known work is expected to read the file at `due_s`, s since 1970; NaN: no longer."""
        del file, due_s

    def may_go(self, file: int) -> None:
        """A file that had to stay at an eviction need not any more."""
        del file

    def bytes_on_disk(self, file: int) -> int | None:
        """What the file has on disk; None if it is not there."""

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """Files on disk, the least valuable first, until their bytes reach `n_bytes` or none is left.

        `spare`: bool[files known or more], files that must stay; they may be left out until `may_go`. Victims
        remain on disk until `removed`.
        """


class ArrayOrder(EvictionOrder, Protocol):
    """An order that kernels ask. `learnt`: what it has learned; `followed`: its arrays, until `add`."""

    learnt: LearntOrders

    @property
    def followed(self) -> Followed: ...


FEWEST = 1024
"""Files and datasets that there is room for at first; it grows by an eighth."""
MOST_BYTES = 2**63 - 1

_note_read, _store, _drop = direct(kernel.note_read), direct(kernel.store), direct(kernel.drop)
_may_go, _victims = direct(kernel.may_go), direct(kernel.victims)

_Number = TypeVar("_Number", bound=np.generic)


class HeuristicOrder(ArrayOrder):
    """The order of a kind (see `replay.kernels.heuristics`); 25 bytes per known file or a few less."""

    def __init__(self, kind: int, capacity_bytes: int = 0) -> None:
        self.learnt = LearntOrders(())
        self._of = new_heuristic(kind, capacity_bytes, FEWEST, FEWEST)
        self._n_files = 0

    @property
    def followed(self) -> Followed:
        return self._of, None, None

    @property
    def following(self) -> str:
        return NAMES[self._of.kind]

    def add(self, dataset: IntArray, tier: IntArray, size_bytes: IntArray) -> None:
        first, self._n_files = self._n_files, self._n_files + dataset.size
        make_room(self._of, self._n_files, n_known(dataset))
        if self._of.kind == DATASET_LRU:
            self._of.dataset[first : self._n_files] = dataset

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        _note_read(self._of, file, is_held)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        _store(self._of, file, n_bytes)

    def removed(self, file: int) -> None:
        _drop(self._of, file)

    def may_go(self, file: int) -> None:
        _may_go(self._of, file)

    def bytes_on_disk(self, file: int) -> int | None:
        return bytes_held(self._of, file)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        if n_bytes <= 0:
            return []
        victim = room_for_victims(self._of)
        n = _victims(self._of, min(n_bytes, MOST_BYTES), spare, victim)
        files: list[int] = victim[:n].tolist()
        return files


def bytes_held(order: Heuristic, file: int) -> int | None:
    """What the file has on disk; None if it is not there."""
    queues = order.queues
    return int(queues.n_bytes[file]) if 0 < queues.queue[file] < GHOSTS else None


def room_for_victims(order: Heuristic) -> Ids:
    """Room for all files on disk, which a kernel fills."""
    return np.empty(int(order.queues.sums[:GHOSTS, COUNT].sum()), np.int32)


def make_room(order: Heuristic, n_files: int, n_datasets: int) -> None:
    """Lengthen the arrays of `order` to hold at least `n_files` files and `n_datasets` datasets."""
    queues = order.queues
    room = larger(queues.queue.size, n_files)
    extend(queues.link, room + ENDS)
    extend(queues.queue, room)
    extend(queues.n_bytes, room)
    if order.kind == S3FIFO:
        extend(order.hits, room)
    if order.kind == DATASET_LRU:
        extend(order.dataset, room)
        extend(order.ends, larger(len(order.ends), n_datasets))
    if order.turn.size:
        extend(order.turn, room)


def make_room_in_shadow(shadow: Shadow, n_files: int, n_datasets: int = 0) -> None:
    """Lengthen the arrays of the order of `shadow` likewise, and its own."""
    make_room(shadow.order, n_files, n_datasets)
    extend(shadow.victim, shadow.order.queues.queue.size)


def n_known(dataset: IntArray) -> int:
    """How many datasets there are, at least."""
    return int(dataset.max(initial=-1)) + 1


def larger(room: int, n: int) -> int:
    """Room for `n` things where there was `room`."""
    return room if n <= room else max(n, room + room // 8)


def extend(values: npt.NDArray[_Number], n: int, by: npt.ArrayLike = 0) -> None:
    """Make `values` an array of `n` rows or more, in place; the new ones are `by`."""
    before = len(values)
    if n > before:
        values.resize((n, *values.shape[1:]), refcheck=False)
        values[before:] = by
