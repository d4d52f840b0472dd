"""The learned order: of a sample of the files on disk, the least valuable goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import bare
from features.stream.state import LAST, Files, Read, State, new_state, update
from replay.kernels.scored_files import (
    N_HELD,
    Disk,
    Known,
    Rule,
    empty_disk,
    expect,
    insert,
    least_valuable,
    new_rule,
    no_values,
    remove,
    set_aside,
)
from replay.policies.learned import Order
from replay.steward.heuristics import Lru
from replay.steward.order import Chooser

_Integers = TypeVar("_Integers", Ids, IntArray)

FEWEST = 1024
"""Files and datasets that there is room for at first; it doubles."""


class AccessHistory:
    """Files by number, from 0 in the order of `add`, and their reads. `known` is replaced when it grows."""

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
        _note(self.known, Read(file, reader, 1.0, at_s, self._now_s))

    def expect(self, file: int, due_s: float) -> None:
        """Known work is expected to read the file at `due_s`; NaN: not any more."""
        expect(self.known, file, due_s, self._now_s)

    def last_read_s(self, file: int) -> float:
        """Time of the file's last read; NaN: never."""
        return float(self.known.state.file[file, LAST])

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
                dataset=longer(files.dataset, more, 0),
                tier=longer(files.tier, more, 0),
                size_bytes=longer(files.size_bytes, more, -1),
                rank=longer(files.rank, more, -1),
                n_files=longer(files.n_files, d_more, 0),
            ),
            values._replace(
                log_rate=np.concatenate([values.log_rate, unscored.log_rate]),
                at_s=np.concatenate([values.at_s, unscored.at_s]),
                due_s=np.concatenate([values.due_s, unscored.due_s]),
                told_s=np.concatenate([values.told_s, unscored.told_s]),
            ),
        )


def longer(values: _Integers, more: int, fill: int) -> _Integers:
    """`values` and `more` times `fill` behind them."""
    return np.concatenate([values, np.full(more, fill, values.dtype)])


@bare
def _note(known: Known, read: Read) -> None:
    update(known.state, known.files, read)


_MOST_BYTES = 2**63 - 1


class Wanted(NamedTuple):
    """Victims of `n_bytes` at a time; `bytes_of`: int64[m], on disk; `spare`: bool[m], files that stay."""

    n_bytes: int
    now_s: float
    bytes_of: IntArray
    spare: BoolArray


class LearnedOrder:
    """Value by a model of the reads to come, from the time of the first of `orders` on; LRU before."""

    following = "learned"

    def __init__(
        self,
        orders: Sequence[Order],
        *,
        lru: Chooser | None = None,
        history: AccessHistory | None = None,
        twin: LearnedOrder | None = None,
    ) -> None:
        """`orders`: by the time at which each begins. `lru` decides before the first one begins.

        `lru` (an LRU of the same disk) and `history` may be shared with other orders. Then their owner keeps
        them up to date, and passes a read on to this order first. None: this order has its own. `twin`: an
        order of the same disk, which knows what is on it; it is told instead of this one.
        """
        self._orders = orders
        self._own_lru = Lru() if lru is None else None
        self._before: Chooser | None = self._own_lru if lru is None else lru
        self.history = AccessHistory() if history is None else history
        self._owns_history = history is None
        self._twin = twin
        self._disk, self._bytes = empty_disk(FEWEST), np.zeros(FEWEST, np.int64)
        self._at = -1
        self._rule: Rule | None = None

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """See `EvictionOrder`."""
        if self._owns_history:
            self.history.add(dataset, tier, size_bytes)

    def resize(self, file: int, size_bytes: int) -> None:
        """See `EvictionOrder`."""
        if self._owns_history:
            self.history.resize(file, size_bytes)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """See `EvictionOrder`."""
        self._begin(at_s)
        if self._own_lru is not None:
            self._own_lru.read(file, reader, at_s, is_held=is_held)
        if self._owns_history:
            self.history.read(file, reader, at_s)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """See `EvictionOrder`."""
        if self._twin is not None:
            return
        if self._own_lru is not None:
            self._own_lru.stored(file, n_bytes, at_s)
        self._make_room()
        if self._disk.place[file] < 0:
            insert(self._disk, file, n_bytes)
        self._bytes[file] = n_bytes

    def removed(self, file: int) -> None:
        """See `EvictionOrder`."""
        if self._own_lru is not None:
            self._own_lru.removed(file)
        if self._holds(file):
            remove(self._disk, file, self._bytes[file])

    def expect(self, file: int, due_s: float) -> None:
        """See `EvictionOrder`."""
        if self._owns_history:
            self.history.expect(file, due_s)

    def bytes_on_disk(self, file: int) -> int | None:
        """See `EvictionOrder`."""
        if self._twin is not None:
            return self._twin.bytes_on_disk(file)
        return int(self._bytes[file]) if self._holds(file) else None

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """See `EvictionOrder`."""
        rule = self._begin(now_s)
        if rule is None:
            assert self._before is not None
            return self._before.victims(n_bytes, now_s, spare)
        of = self if self._twin is None else self._twin
        chosen = np.empty(of._disk.sums[N_HELD], np.int32)
        wanted = Wanted(min(n_bytes, _MOST_BYTES), now_s, of._bytes, spare)
        n = _choose(of._disk, self.history.known, rule, wanted, chosen)
        found: list[int] = chosen[:n].tolist()
        return found

    def valued(self, now_s: float) -> tuple[Disk, Known, Rule] | None:
        """The disk, its files, and the rule that values them at `now_s`; None before the first order."""
        self._make_room()
        rule = self._begin(now_s)
        return None if rule is None else (self._disk, self.history.known, rule)

    def _begin(self, now_s: float) -> Rule | None:
        """Begin the order of `now_s`, without values of the one before; its rule, None before the first."""
        while self._at + 1 < len(self._orders) and self._orders[self._at + 1].from_s <= now_s:
            self._at += 1
            self._before, self._own_lru, order = None, None, self._orders[self._at]
            self._rule = new_rule(order.ladder, order.share)
            self.history.known.values.at_s[:] = np.nan
        return self._rule

    def _holds(self, file: int) -> bool:
        return file < self._disk.place.size and bool(self._disk.place[file] >= 0)

    def _make_room(self) -> None:
        more = self.history.known.files.dataset.size - self._bytes.size
        if more > 0:
            place, held, sums = self._disk
            self._disk = Disk(longer(place, more, -1), longer(held, more, 0), sums)
            self._bytes = longer(self._bytes, more, 0)


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
