"""Reactive prefetch, in replay only: absent files are fetched when their dataset begins to be read."""

from __future__ import annotations

from array import array
from collections import deque
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, Ids
from features.common.jit import kernel
from features.common.times import DAY_S
from features.stream.row import row
from features.stream.state import READS
from replay.kernels.heuristics import ALL
from replay.kernels.lanes import LANES
from replay.kernels.links import oldest
from replay.kernels.scored_files import N_HELD, Disk, Known, Rule, least_valuable, score, worth
from replay.kernels.trees import chances, fill
from replay.steward.learned import LearnedOrder
from replay.steward.steward import Numbers, Steward


class Asked(NamedTuple):
    """Absent files at a time, int32[k]; `spare`: bool[m], files on disk that are no victims."""

    files: Ids
    now_s: float
    spare: BoolArray


@kernel
def likely(disk: Disk, known: Known, rule: Rule, asked: Asked, horizon: int) -> FloatArray:
    """The chance of a read within horizon `horizon` of each file, float64[k]; -1: on disk, or never read."""
    files, now_s, n = asked.files, asked.now_s, 0
    out = np.empty(files.size)
    for k in range(files.size):
        file = files[k]
        is_asked = known.state.file[file, READS] > 0 and disk.place[file] < 0
        out[k] = 0.0 if is_asked else -1.0
        if is_asked:
            row(known.state, known.files, file, now_s, known.values.x)
            fill(rule.models.forest, known.values.x, rule.block, n)
            known.values.stale[n] = k
            n += 1
        if n == LANES or (n > 0 and k == files.size - 1):
            chances(rule.models, horizon, rule.block, n)
            for lane in range(n):
                out[known.values.stale[lane]] = rule.block.chance[lane]
            n = 0
    return out


@kernel
def worth_more(disk: Disk, known: Known, rule: Rule, asked: Asked) -> BoolArray:
    """Which of at most `LANES` files are worth more than the least valuable of a sample of those on disk."""
    files, n_held = asked.files, disk.sums[N_HELD]
    worst = least_valuable(disk, known, rule, asked.spare, asked.now_s)
    disk.sums[N_HELD] = n_held
    floor = worth(known, rule, worst, asked.now_s) if worst >= 0 else -np.inf
    known.values.stale[: files.size] = files
    score(known, rule, files.size, asked.now_s)
    known.values.at_s[files] = asked.now_s
    out = np.empty(files.size, np.bool_)
    for k in range(files.size):
        out[k] = worth(known, rule, files[k], asked.now_s) > floor
    return out


PAUSE_S = 60.0
"""A dataset is asked about at most once in this time while it is read."""


class Fetching(NamedTuple):
    """When and how much to fetch.

    `least_chance`: of a read within the time that plain LRU keeps a file; `share`: of the bytes missed within
    a day, as a limit of those fetched within it.
    """

    least_chance: float
    share: float


class Sought(NamedTuple):
    """Absent files that are read with at least this chance within about `age_s`, at `now_s`; `spare`: as in
    `EvictionOrder.victims`.
    """

    least_chance: float
    age_s: float
    now_s: float
    spare: BoolArray


class FetchingSteward(Steward):
    """A steward that also says which files to fetch ahead, by the models of its order.

    It fetches nothing before the first order begins.
    """

    def __init__(self, order: LearnedOrder, *, capacity_bytes: int, fetching: Fetching) -> None:
        super().__init__(order, capacity_bytes=capacity_bytes)
        self._learned, self._limits = order, fetching
        self._dataset = array("i")
        self._files: dict[int, array[int]] = {}
        self._asked_s: dict[int, float] = {}
        self._due: dict[int, None] = {}
        self._under_way: set[int] = set()
        self._missed, self._begun = _Window(DAY_S), _Window(DAY_S)

    def add(self, dataset: Numbers, tier: Numbers, size_bytes: Numbers) -> int:
        """See `Steward`."""
        first = super().add(dataset, tier, size_bytes)
        for file, of in enumerate(np.atleast_1d(dataset).tolist(), first):
            self._files.setdefault(of, array("i")).append(file)
            self._dataset.append(of)
        return first

    def read(self, file: int, reader: int, at_s: float) -> None:
        """See `Steward`."""
        missed_bytes = self._takes[file] if self.bytes_on_disk(file) is None else 0
        super().read(file, reader, at_s)
        self._due[self._dataset[file]] = None
        if missed_bytes:
            self._missed.add(at_s, missed_bytes)
            self._under_way.discard(file)  # the job waits for it: it does not come ahead

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """See `Steward`."""
        super().stored(file, n_bytes, at_s)
        self._under_way.discard(file)

    def given_up(self, file: int) -> None:
        """A file that was to be fetched did not come."""
        self._under_way.discard(file)

    def fetches(self, now_s: float) -> list[int]:
        """Absent files that should be fetched now, each until it is `stored` or the fetch was `given_up`.

        They are of datasets that were read since they were last asked about. A file that a plan evicts is
        none of them.
        """
        longest_unread = oldest(self._lru.order.queues, ALL)
        if longest_unread < 0:
            self._due.clear()
            return []
        age_s = now_s - self._learned.history.last_read_s(longest_unread)
        if not age_s > 0:
            return []
        sought = Sought(self._limits.least_chance, age_s, now_s, self._spare)
        chosen: list[int] = []
        for dataset in [d for d in self._due if now_s - self._asked_s.get(d, -np.inf) >= PAUSE_S]:
            room = self._room(now_s)
            if room <= 0:
                break
            del self._due[dataset]
            self._asked_s[dataset] = now_s
            for file in candidates(self._learned, np.array(self._files[dataset], np.int32), sought):
                takes = self._takes[file]
                if file in self._under_way or self.goes_first(file) or not 0 < takes <= room:
                    continue
                room -= takes
                self._under_way.add(file)
                self._begun.add(now_s, takes)
                chosen.append(file)
        return chosen

    def _room(self, now_s: float) -> int:
        """Bytes that may be fetched now."""
        return int(self._limits.share * self._missed.sum(now_s)) - self._begun.sum(now_s)


def candidates(order: LearnedOrder, files: Ids, sought: Sought) -> list[int]:
    """Those of `files` that are worth fetching, at most `LANES`, the likeliest first.

    Each was read before, and is worth more than the least valuable of a sample of the files on disk. None are
    sought before the first order begins.
    """
    of = order.valued(sought.now_s)
    if of is None or not files.size:
        return []
    _, _, rule = of
    asked = Asked(files, sought.now_s, sought.spare)
    horizon = int(np.abs(np.log(rule.models.horizon_s / sought.age_s)).argmin())
    chance = likely(*of, asked, horizon)
    best = np.argsort(-chance, kind="stable")[:LANES]
    asked = asked._replace(files=files[best[chance[best] >= sought.least_chance]])
    found: list[int] = asked.files[worth_more(*of, asked)].tolist()
    return found


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
