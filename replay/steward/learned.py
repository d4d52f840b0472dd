"""The learned order: of a sample of the files on disk, the least valuable goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from features.arrays import BoolArray, Ids, IntArray
from features.jit import bare
from features.stream.state import LAST, Files, Read, State, new_state, update
from replay.kernels.coming import Asked, likely, worth_more
from replay.kernels.valued import (
    N_HELD,
    Disk,
    Known,
    Rule,
    empty_disk,
    insert,
    least_valuable,
    new_rule,
    no_values,
    remove,
    set_aside,
)
from replay.lanes import LANES
from replay.policies.learned import Order
from replay.steward.lru import Lru
from replay.steward.order import Untold

_Integers = TypeVar("_Integers", Ids, IntArray)

FEWEST = 1024
"""Files and datasets that there is room for at first; it doubles."""
_MOST_BYTES = 2**63 - 1


class Wanted(NamedTuple):
    """Victims of `n_bytes` at a time; `bytes_of`: int64[m], on disk; `spare`: bool[m], files that stay."""

    n_bytes: int
    now_s: float
    bytes_of: IntArray
    spare: BoolArray


class Sought(NamedTuple):
    """Absent files that are read with at least this chance within about `age_s`, at `now_s`; `spare`: as in
    `Wanted`.
    """

    least_chance: float
    age_s: float
    now_s: float
    spare: BoolArray


class Memory:
    """What is known of the files' reads. `known` is replaced when it grows."""

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

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """Make a file known."""
        self._make_room(dataset)
        files, file = self.known.files, self.n_files
        files.dataset[file], files.tier[file], files.size_bytes[file] = dataset, tier, size_bytes
        self.n_files += 1

    def resize(self, file: int, size_bytes: int) -> None:
        """Correct a file's size."""
        self.known.files.size_bytes[file] = size_bytes

    def read(self, file: int, reader: int, at_s: float) -> None:
        """Count a read."""
        self._now_s = max(self._now_s, at_s)
        _note(self.known.state, self.known.files, Read(file, reader, 1.0, at_s, self._now_s))

    def _make_room(self, dataset: int) -> None:
        """Room for one more file, and for `dataset`."""
        state, files, values = self.known
        room, d_room = files.dataset.size, files.n_files.size
        if self.n_files < room and dataset < d_room:
            return
        more = room if self.n_files == room else 0
        d_more = max(d_room, dataset + 1 - d_room) if dataset >= d_room else 0
        unread, unscored = new_state(more, d_more), no_values(more)
        self.known = Known(
            State(
                np.concatenate([state.file, unread.file]),
                np.concatenate([state.dataset, unread.dataset]),
                np.concatenate([state.passes, unread.passes]),
            ),
            files._replace(
                dataset=_longer(files.dataset, more, 0),
                tier=_longer(files.tier, more, 0),
                size_bytes=_longer(files.size_bytes, more, -1),
                rank=_longer(files.rank, more, -1),
                n_files=_longer(files.n_files, d_more, 0),
            ),
            values._replace(
                value=np.concatenate([values.value, unscored.value]),
                at_s=np.concatenate([values.at_s, unscored.at_s]),
            ),
        )


class Shelf(Untold):
    """Files on disk, in the order of what a `Memory` knows: LRU before the first order begins.

    Several shelves may share a memory, which is told of files and of reads, of these after the shelves.
    """

    following = "learned"

    def __init__(self, memory: Memory, orders: Sequence[Order]) -> None:
        self._memory, self._orders = memory, orders
        self._disk, self._bytes = empty_disk(FEWEST), np.zeros(FEWEST, np.int64)
        self._before: Lru | None = Lru()
        self._at = -1
        self._rule: Rule | None = None

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """Nothing that the memory would not know, once an order has begun."""
        self._begin(at_s)
        if self._before is not None:
            self._before.read(file, reader, at_s, is_held=is_held)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """See `EvictionOrder`."""
        if self._before is not None:
            self._before.stored(file, n_bytes, at_s)
        self._make_room()
        if self._disk.place[file] < 0:
            insert(self._disk, file, n_bytes)
        self._bytes[file] = n_bytes

    def removed(self, file: int) -> None:
        """See `EvictionOrder`."""
        if self._before is not None:
            self._before.removed(file)
        if file < self._disk.place.size and self._disk.place[file] >= 0:
            remove(self._disk, file, self._bytes[file])

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """See `EvictionOrder`."""
        self._begin(now_s)
        if self._before is not None:
            return self._before.victims(n_bytes, now_s, spare)
        assert self._rule is not None
        chosen = np.empty(self._disk.sums[N_HELD], np.int32)
        wanted = Wanted(min(n_bytes, _MOST_BYTES), now_s, self._bytes, spare)
        n = _choose(self._disk, self._memory.known, self._rule, wanted, chosen)
        found: list[int] = chosen[:n].tolist()
        return found

    def coming(self, files: Ids, sought: Sought) -> list[int]:
        """Those of `files` that are sought, at most `LANES`, the likeliest first; before an order none.

        Each was read before, and is worth more than the least valuable of a sample of the files on disk.
        """
        self._begin(sought.now_s)
        self._make_room()
        if self._rule is None or not files.size:
            return []
        horizon_s = self._rule.ladder.horizon_s
        of = self._disk, self._memory.known, self._rule
        asked = Asked(files, sought.now_s, sought.spare)
        rung = int(np.abs(np.log(horizon_s / sought.age_s)).argmin())
        chance = likely(*of, asked, rung)
        best = np.argsort(-chance, kind="stable")[:LANES]
        asked = asked._replace(files=files[best[chance[best] >= sought.least_chance]])
        found: list[int] = asked.files[worth_more(*of, asked)].tolist()
        return found

    def _begin(self, now_s: float) -> None:
        """Begin the order of `now_s`: values are of the one before."""
        while self._at + 1 < len(self._orders) and self._orders[self._at + 1].from_s <= now_s:
            self._at += 1
            self._before, order = None, self._orders[self._at]
            self._rule = new_rule(order.ladder, order.share)
            self._memory.known.values.at_s[:] = np.nan

    def _make_room(self) -> None:
        more = self._memory.known.files.dataset.size - self._bytes.size
        if more > 0:
            place, held, sums = self._disk
            self._disk = Disk(_longer(place, more, -1), _longer(held, more, 0), sums)
            self._bytes = _longer(self._bytes, more, 0)


class LearnedOrder:
    """Value by a model of the reads to come, from the time of the first of `orders` on; LRU before."""

    following = "learned"

    def __init__(self, orders: Sequence[Order]) -> None:
        self.memory = Memory()
        self._shelf = Shelf(self.memory, orders)

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """See `EvictionOrder`."""
        self.memory.add(dataset, tier, size_bytes)

    def resize(self, file: int, size_bytes: int) -> None:
        """See `EvictionOrder`."""
        self.memory.resize(file, size_bytes)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """See `EvictionOrder`."""
        self._shelf.read(file, reader, at_s, is_held=is_held)
        self.memory.read(file, reader, at_s)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """See `EvictionOrder`."""
        self._shelf.stored(file, n_bytes, at_s)

    def removed(self, file: int) -> None:
        """See `EvictionOrder`."""
        self._shelf.removed(file)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """See `EvictionOrder`."""
        return self._shelf.victims(n_bytes, now_s, spare)

    @property
    def foresight(self) -> LearnedOrder:
        """Itself."""
        return self

    def last_read_s(self, file: int) -> float:
        """When the file was last read; NaN: never."""
        return float(self.memory.known.state.file[file, LAST])

    def coming(self, files: Ids, sought: Sought) -> list[int]:
        """See `Shelf`."""
        return self._shelf.coming(files, sought)


@bare
def _note(state: State, files: Files, read: Read) -> None:
    update(state, files, read)


@bare
def _choose(disk: Disk, known: Known, rule: Rule, wanted: Wanted, chosen: Ids) -> int:
    """Write the files that should go to `chosen`, until their bytes are enough; their number."""
    n_held, missing, n = disk.sums[N_HELD], wanted.n_bytes, 0
    while missing > 0:
        file = least_valuable(disk, known, rule, wanted.spare, wanted.now_s)
        if file < 0:
            break
        set_aside(disk, file)
        chosen[n] = file
        missing -= wanted.bytes_of[file]
        n += 1
    disk.sums[N_HELD] = n_held
    return n


def _longer(values: _Integers, more: int, fill: int) -> _Integers:
    return np.concatenate([values, np.full(more, fill, values.dtype)])
