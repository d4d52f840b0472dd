"""The files of a cache and their order of eviction: the same object in replay and beside a live cache."""

from array import array
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray, Ids, IntArray
from features.common.jit import direct
from features.common.times import DAY_S
from replay.kernels import shadow as kernel
from replay.kernels.heuristics import LRU, new_heuristic
from replay.kernels.shadow import Inventory, new_shadow
from replay.steward.order import FEWEST, EvictionOrder, extend, larger, make_room_in_shadow

_serve, _fill, _take = direct(kernel.serve), direct(kernel.fill), direct(kernel.take)

Numbers = int | IntArray | Ids
"""Of one file, or of several."""


class Saved(NamedTuple):
    """Bytes read on a day while not on disk: with plain LRU, and with this steward.

    Their difference is what this steward saved. A file counts with the bytes that it last had on disk, or its
    size if it never was.
    """

    lru_bytes: int
    our_bytes: int


class Sum(NamedTuple):
    """Files, and their bytes on disk."""

    n_files: int
    n_bytes: int


class Steward:
    """A cache's files by number, from 0 in the order of `add`. Events come as they become known.

    `capacity_bytes`: what plain LRU would hold, for the figures of `saved`. `is_credited`: whether reads
    count there; set it to False while nothing is evicted that should be.
    """

    def __init__(self, order: EvictionOrder, *, capacity_bytes: int) -> None:
        self._order = order
        self._lru = new_shadow(new_heuristic(LRU, capacity_bytes, FEWEST, 0), capacity_bytes)
        self._takes, self._opens = array("q"), array("i")
        self._spare = np.zeros(FEWEST, np.bool_)
        self._pinned: set[int] = set()
        self._evict_first: dict[int, None] = {}
        self._saved: dict[int, Saved] = {}
        self.is_credited = True
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.n_held = 0

    @property
    def following(self) -> str:
        """The order that is followed now."""
        return self._order.following

    def saved(self) -> Mapping[int, Saved]:
        """The figures by day (days since 1970-01-01, UTC) on which a file was read."""
        return MappingProxyType(self._saved)

    def add(self, dataset: Numbers, tier: Numbers, size_bytes: Numbers) -> int:
        """Make a file known, or several; the number of the first. `size_bytes` -1: not known."""
        files = [np.atleast_1d(column).astype(np.int64, copy=False) for column in (dataset, tier, size_bytes)]
        first, n_files = len(self._takes), len(self._takes) + files[0].size
        make_room_in_shadow(self._lru, n_files)
        extend(self._spare, larger(self._spare.size, n_files))
        self._order.add(*files)
        self._takes.frombytes(np.maximum(0, files[2]).tobytes())
        self._opens.frombytes(np.zeros(files[0].size, np.int32).tobytes())
        return first

    def bytes_on_disk(self, file: int) -> int | None:
        """What the file has on disk; None if it is not there."""
        return self._order.bytes_on_disk(file)

    def read(self, file: int, reader: int, at_s: float) -> None:
        """Count a read. `reader`: see `EvictionOrder`."""
        is_held, takes = self.bytes_on_disk(file) is not None, self._takes[file]
        hits_lru = _serve(self._lru, file, takes)
        if self.is_credited:
            day = int(at_s // DAY_S)
            lru_bytes, our_bytes = self._saved.get(day, (0, 0))
            self._saved[day] = Saved(lru_bytes + takes * (not hits_lru), our_bytes + takes * (not is_held))
        self._order.read(file, reader, at_s, is_held=is_held)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A file has so many bytes on disk from now on."""
        self._takes[file] = n_bytes
        before = self.bytes_on_disk(file)
        self.n_held += before is None
        self.used_bytes += n_bytes - (before or 0)
        self._order.stored(file, n_bytes, at_s)
        _fill(self._lru, file, n_bytes)

    def take_inventory(self, inventory: Inventory) -> None:
        """Read and store all files of an inventory at once; the readers are unknown."""
        if not inventory.file.size:
            return
        takes, hits = np.frombuffer(self._takes, np.int64), np.zeros(inventory.file.size, np.bool_)
        n_bytes = takes[inventory.file]
        _take(self._lru, inventory, takes, hits)
        before = self._order.take_inventory(inventory)
        self.n_held += int((before < 0).sum())
        self.used_bytes += int((inventory.n_bytes - np.maximum(before, 0)).sum())
        read = inventory.is_read
        if self.is_credited:
            self._save(inventory.at_s[read], (n_bytes * ~hits)[read], (n_bytes * (before < 0))[read])

    def _save(self, at_s: FloatArray, lru_bytes: IntArray, our_bytes: IntArray) -> None:
        """Add what was read while it was not on disk with plain LRU, and with ours."""
        days, which = np.unique(at_s // DAY_S, return_inverse=True)
        sums = np.zeros((2, days.size), np.int64)
        for sum_bytes, missed in zip(sums, (lru_bytes, our_bytes), strict=True):
            np.add.at(sum_bytes, which, missed)
        for day, lru, ours in zip(days.tolist(), *sums.tolist(), strict=True):
            before = self._saved.get(int(day), Saved(0, 0))
            self._saved[int(day)] = Saved(before.lru_bytes + lru, before.our_bytes + ours)

    def removed(self, file: int) -> None:
        """A file is not on disk any more, whoever removed it."""
        n_bytes = self.bytes_on_disk(file)
        if n_bytes is not None:
            self.n_held -= 1
            self.used_bytes -= n_bytes
            self._order.removed(file)
        self._evict_first.pop(file, None)

    def expect(self, file: int, due_s: float) -> None:
        """Known work is expected to read the file at `due_s`, s since 1970; NaN: not any more."""
        self._order.expect(file, due_s)

    def opened(self, file: int) -> None:
        """A client opened the file: it stays until every client has closed it."""
        self._opens[file] += 1
        self._spare[file] = True

    def closed(self, file: int) -> None:
        """A client that had opened the file has closed it."""
        self._opens[file] = max(0, self._opens[file] - 1)
        self._spare[file] = self._opens[file] > 0 or file in self._pinned
        if not self._spare[file]:
            self._order.may_go(file)

    def pin(self, files: Collection[int]) -> None:
        """The pins from now on: files that are no victims."""
        before, self._pinned = self._pinned, set(files)
        for file in self._pinned:
            self._spare[file] = True
        for file in sorted(before - self._pinned):
            if not self._opens[file]:
                self._spare[file] = False
                self._order.may_go(file)

    def evict_first(self, files: Collection[int]) -> None:
        """The files that go before all others from now on, in this order, each once."""
        self._evict_first = dict.fromkeys(files)

    def goes_first(self, file: int) -> bool:
        """Whether `evict_first` named the file."""
        return file in self._evict_first

    def first_to_go(self) -> Sum:
        """The files of `evict_first` on disk that are neither pinned nor open."""
        on_disk = [self.bytes_on_disk(file) for file in self._evict_first if not self._spare[file]]
        held = [n_bytes for n_bytes in on_disk if n_bytes is not None]
        return Sum(len(held), sum(held))

    def victims(self, n_bytes: int, now_s: float) -> list[int]:
        """Files that should go now, until their bytes on disk reach `n_bytes` or nothing is left.

        They count as held until `removed`. Neither a pin nor an open file is among them.
        """
        first: list[int] = []
        for file in self._evict_first:
            if n_bytes <= 0:
                return first
            on_disk = self.bytes_on_disk(file)
            if on_disk is not None and not self._spare[file]:
                first.append(file)
                n_bytes -= on_disk
        for file in first:
            self._spare[file] = True
        others = self._order.victims(n_bytes, now_s, self._spare)
        for file in first:
            self._spare[file] = False
            self._order.may_go(file)
        return [*first, *others]
