"""Reactive prefetch: which absent files to fetch when their dataset begins to be read."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Container, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from features.arrays import BoolArray
from features.times import DAY_S
from replay.steward.learned import LearnedOrder, Sought
from replay.steward.lru import Lru
from replay.steward.order import EvictionOrder

PAUSE_S = 60.0
"""A dataset is asked about at most once in this time while it is read."""
HOUR_S = 3600.0


class Fetching(NamedTuple):
    """When and how much to fetch.

    `least_chance`: of a read within the time that plain LRU keeps a file; `share`: of the bytes missed within
    a day, as a limit of those fetched within it; `bytes_per_hour`: limit of missed and fetched, None: none.
    """

    least_chance: float
    share: float
    bytes_per_hour: int | None = None


class Fetched(NamedTuple):
    """Files and bytes that came; of these bytes those that a job read, and those evicted unread."""

    files: int
    bytes: int
    read_bytes: int
    wasted_bytes: int


NOTHING = Fetched(0, 0, 0, 0)


@runtime_checkable
class Foreseeing(Protocol):
    """An order of eviction that may follow models: `foresight` is None while it does not."""

    @property
    def foresight(self) -> LearnedOrder | None: ...


class Ahead:
    """Asks `order` about datasets that are being read; `lru`: plain LRU on the same reads."""

    def __init__(self, order: EvictionOrder, lru: Lru, limits: Fetching) -> None:
        self.fetched = NOTHING
        self._order, self._lru, self._limits = order, lru, limits
        self._dataset = array("i")
        self._files: dict[int, array[int]] = {}
        self._asked_s: dict[int, float] = {}
        self._due: dict[int, None] = {}
        self._under_way: dict[int, int] = {}
        self._unread: dict[int, int] = {}
        self._missed, self._begun = _Window(DAY_S), _Window(DAY_S)
        self._wan = _Window(HOUR_S)

    def add(self, dataset: int) -> None:
        """Make a file known: its number is that of files known before."""
        self._files.setdefault(dataset, array("i")).append(len(self._dataset))
        self._dataset.append(dataset)

    def read(self, file: int, at_s: float, missed_bytes: int) -> None:
        """A job read a file; `missed_bytes`: 0 if it was on disk."""
        self._due[self._dataset[file]] = None
        if missed_bytes:
            self._missed.add(at_s, missed_bytes)
            self._wan.add(at_s, missed_bytes)
            self._under_way.pop(file, None)  # the job waits for it: it does not come ahead
        self._count(read_bytes=self._unread.pop(file, 0))

    def stored(self, file: int, n_bytes: int) -> None:
        """A file came to the disk, fetched ahead or not."""
        if self._under_way.pop(file, None) is not None:
            self._unread[file] = n_bytes
            self._count(files=1, n_bytes=n_bytes)

    def removed(self, file: int) -> None:
        """A file is not on disk any more."""
        self._count(wasted_bytes=self._unread.pop(file, 0))

    def given_up(self, file: int) -> None:
        """A file that was to be fetched did not come."""
        self._under_way.pop(file, None)

    def fetches(
        self, now_s: float, takes: Sequence[int], spare: BoolArray, left_out: Container[int]
    ) -> list[int]:
        """Files to fetch from now on, of datasets that were read since they were last asked about.

        `takes`: bytes of each file; `spare`: as for `EvictionOrder.victims`; `left_out`: files that
        stay away.
        """
        foresees = self._order.foresight if isinstance(self._order, Foreseeing) else None
        oldest = self._lru.oldest
        if foresees is None or oldest is None:
            self._due.clear()
            return []
        age_s = now_s - foresees.last_read_s(oldest)
        if not age_s > 0:
            return []
        sought = Sought(self._limits.least_chance, age_s, now_s, spare)
        chosen: list[int] = []
        for dataset in [d for d in self._due if now_s - self._asked_s.get(d, -np.inf) >= PAUSE_S]:
            room = self._room(now_s)
            if room <= 0:
                break
            del self._due[dataset]
            self._asked_s[dataset] = now_s
            for file in foresees.coming(np.array(self._files[dataset], np.int32), sought):
                if file in self._under_way or file in left_out or not 0 < takes[file] <= room:
                    continue
                room -= takes[file]
                self._under_way[file] = takes[file]
                self._begun.add(now_s, takes[file])
                self._wan.add(now_s, takes[file])
                chosen.append(file)
        return chosen

    def _room(self, now_s: float) -> int:
        """Bytes that may be fetched now."""
        room = int(self._limits.share * self._missed.sum(now_s)) - self._begun.sum(now_s)
        if self._limits.bytes_per_hour is not None:
            room = min(room, self._limits.bytes_per_hour - self._wan.sum(now_s))
        return room

    def _count(self, *, files: int = 0, n_bytes: int = 0, read_bytes: int = 0, wasted_bytes: int = 0) -> None:
        more = (files, n_bytes, read_bytes, wasted_bytes)
        if any(more):
            self.fetched = Fetched(*(one + by for one, by in zip(self.fetched, more, strict=True)))


class _Window:
    """A running sum over the last `length_s`."""

    def __init__(self, length_s: float) -> None:
        self._length_s, self._sum = length_s, 0
        self._entries: deque[tuple[float, int]] = deque()

    def add(self, at_s: float, n_bytes: int) -> None:
        """Count bytes at a time; times hardly ever decrease."""
        self._entries.append((at_s, n_bytes))
        self._sum += n_bytes

    def sum(self, now_s: float) -> int:
        """The bytes of the time until `now_s`."""
        while self._entries and self._entries[0][0] <= now_s - self._length_s:
            self._sum -= self._entries.popleft()[1]
        return self._sum
