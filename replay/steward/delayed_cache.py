"""A cache beside which a steward evicts, with the delays of a live one."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from features.common.times import DAY_S
from replay.kernels.heuristics import LRU
from replay.planner import CacheState, Planner, peak_inflow, sure_inflow
from replay.policies.policy import Prefetched
from replay.steward.order import HeuristicOrder
from replay.steward.steward import Steward

_ABSENT = -1
_NOT_YET = np.iinfo(np.int64).max


class Delays(NamedTuple):
    """Delays beside a live cache, in s; all zero: the steward decides at each read.

    `seen_s`: until a read and the file that it brought are known; `look_s`: between two looks at the disk, 0:
    at each read that needs room; `headroom`: share of the capacity that is kept free at a look; `effect_s`:
    until an eviction has taken effect; `open_s`: that a file is open from a read on. Open files stay.
    `fetch_s`: until a file that a plan prefetches has come.
    """

    seen_s: int = 0
    look_s: int = 0
    headroom: float = 0.0
    effect_s: int = 0
    open_s: int = 0
    fetch_s: int = 0


NO_DELAY = Delays()
XCACHE = Delays(seen_s=60, look_s=60, headroom=0.01, effect_s=5, open_s=600, fetch_s=60)
"""Beside an XCache: a look per minute, reads reported within a minute, files open for ten minutes."""


class DelayedCache:
    """The cache itself, and what reaches the steward when.

    `fetched_bytes`: of the last read; -1: it went past the cache.
    """

    def __init__(self, steward: Steward, sizes: list[int], capacity_bytes: int, delays: Delays) -> None:
        self._sizes = sizes
        self._steward, self._capacity_bytes, self._delays = steward, capacity_bytes, delays
        self._target_bytes = int(capacity_bytes * (1 - delays.headroom))
        self._own = HeuristicOrder(LRU, n_files=len(sizes))
        self._held = [_ABSENT] * len(sizes)
        self._open_until_s: dict[int, int] = {}
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._n_due = 0
        self._is_look_due = False
        self._leaving_bytes = 0
        self._used_bytes = 0
        self.peak_bytes = self.fetched_bytes = 0
        self.came = PrefetchLog()
        self._pinned, self._away = set[int](), set[int]()
        self._last_use_s = [0] * len(sizes)
        self._inflow_bytes = 0

    def read(self, file: int, reader: int, now_s: int, needed: int) -> int:
        """Serve a read of the first `needed` bytes; the bytes that were on disk, -1 if the file was not."""
        while self._due and self._due[0][0] <= now_s:
            due_s, _, act = heapq.heappop(self._due)
            act(due_s)
        had = self._held[file]
        self.fetched_bytes = 0 if had >= needed else self._fetch(file, needed, now_s)
        self.came.end(file, now_s, is_read=True)
        if file in self._away:
            self._away.remove(file)
            self.came.refetched.append((now_s, needed if self.fetched_bytes < 0 else self.fetched_bytes))
        self._last_use_s[file] = now_s + self._delays.open_s
        self._own.read(file, reader, now_s, is_held=had != _ABSENT)
        if self._delays.open_s:
            self._open_until_s[file] = now_s + self._delays.open_s
        self._later(now_s, self._delays.seen_s, lambda _: self._see(file, reader, now_s))
        return had

    def expect(self, file: int, due_s: float) -> None:
        """See `Steward`."""
        self._steward.expect(file, due_s)

    def _fetch(self, file: int, needed: int, now_s: int) -> int:
        """Bring the first `needed` bytes if there is room, or can be; the bytes that came, else -1."""
        if needed > self._capacity_bytes:
            return -1
        n_bytes = needed - max(0, self._held[file])
        if not self._delays.look_s:
            self._look_for(file, n_bytes, now_s)
        missing = self._used_bytes + n_bytes - self._capacity_bytes
        if missing > 0:
            self._purge(missing, now_s, file)
        if self._used_bytes + n_bytes > self._capacity_bytes:
            return -1
        self._held[file] = needed
        self._used_bytes += n_bytes
        self._inflow_bytes += n_bytes
        self._own.stored(file, needed, now_s)
        self.peak_bytes = max(self.peak_bytes, self._used_bytes)
        return n_bytes

    def _look_for(self, file: int, n_bytes: int, now_s: int) -> None:
        """Make room for bytes of a file; what it has on disk stays."""
        if not self._holds(file):
            self._look(now_s, n_bytes)
            return
        self._steward.opened(file)
        self._look(now_s, n_bytes)
        self._steward.closed(file)

    def _see(self, file: int, reader: int, at_s: int) -> None:
        """A read becomes known to the steward, and whether its file is on disk."""
        self._steward.read(file, reader, at_s)
        if self._holds(file):
            self._steward.stored(file, self._held[file], at_s)
        if self._delays.open_s:
            self._steward.opened(file)
            self._later(at_s, self._delays.open_s, lambda _: self._steward.closed(file))
        self._look_later(at_s)

    def _look_later(self, at_s: int) -> None:
        if self._delays.look_s and not self._is_look_due:
            self._is_look_due = True
            self._later(at_s, self._delays.look_s, lambda now_s: self._look(now_s, 0))

    def _come(self, file: int, now_s: int) -> None:
        """A file that a plan prefetches comes, unless a job has brought it; it is known at once."""
        size = self._sizes[file]
        if not self._holds(file) and self._fetch(file, size, now_s) >= 0:
            self.came.begin(file, size, now_s)
            self._away.discard(file)
            self._last_use_s[file] = now_s
            self._steward.stored(file, size, now_s)
            self._look_later(now_s)

    def _look(self, now_s: int, need_bytes: int) -> None:
        """Evict what is above the target, and not yet on its way."""
        self._is_look_due = False
        over = self._steward.used_bytes - self._leaving_bytes + need_bytes - self._target_bytes
        for file in self._steward.victims(over, now_s):
            n_bytes = self._steward.bytes_on_disk(file) or 0
            self._leaving_bytes += n_bytes
            self._steward.opened(file)  # no victim again while it is on its way
            known = n_bytes, self._steward.goes_first(file)
            self._later(now_s, self._delays.effect_s, partial(self._evict, file, *known))

    def _evict(self, file: int, n_bytes: int, is_planned: bool, now_s: int) -> None:
        """An eviction takes effect, unless the file is open; `n_bytes`: what was known of it on disk."""
        self._leaving_bytes -= n_bytes
        self._steward.closed(file)
        if self._holds(file) and self._open_until_s.get(file, now_s) <= now_s:
            self._remove(file, now_s)
            if is_planned:
                self._away.add(file)

    def _purge(self, n_bytes: int, now_s: int, read: int) -> None:
        """The cache's own purge: the longest unread files that are neither open nor `read` now.

        Pins are touched at each boundary, so they go last.
        """
        self._open_until_s = {file: at for file, at in self._open_until_s.items() if at > now_s}
        is_spared = np.zeros(len(self._held), np.bool_)
        for pins in (self._pinned, ()):
            is_spared[:] = False
            is_spared[np.array([*self._open_until_s, read, *pins], np.int64)] = True
            for file in self._own.victims(n_bytes, now_s, is_spared):
                n_bytes -= self._held[file]
                self._remove(file, now_s)
            if n_bytes <= 0 or not self._pinned:
                return

    def _holds(self, file: int) -> bool:
        return self._held[file] != _ABSENT

    def _remove(self, file: int, now_s: int) -> None:
        self.came.end(file, now_s, is_read=False)
        self._used_bytes -= self._held[file]
        self._held[file] = _ABSENT
        self._own.removed(file)
        self._steward.removed(file)
        if file in self._pinned:
            self._pinned.remove(file)
            self._steward.pin(self._pinned)

    def _later(self, now_s: int, delay_s: int, act: Callable[[int], None]) -> None:
        """Do something after a while; at once if there is no delay."""
        if not delay_s:
            act(now_s)
            return
        self._at(now_s + delay_s, act)

    def _at(self, time_s: int, act: Callable[[int], None]) -> None:
        self._n_due += 1
        heapq.heappush(self._due, (time_s, self._n_due, act))


class PrefetchLog:
    """Files that were fetched ahead, and what became of each.

    `refetched`: time and bytes of each first miss of a file that went because a plan evicts it.
    """

    def __init__(self) -> None:
        self.refetched: list[tuple[int, int]] = []
        self._unread: dict[int, int] = {}
        self._rows: list[tuple[int, int, int, bool]] = []

    def begin(self, file: int, n_bytes: int, now_s: int) -> None:
        """A file came."""
        self._unread[file] = len(self._rows)
        self._rows.append((now_s, n_bytes, _NOT_YET, False))

    def end(self, file: int, now_s: int, *, is_read: bool) -> None:
        """A file was read or left; only its first end counts."""
        place = self._unread.pop(file, None)
        if place is not None:
            at_s, n_bytes, _, _ = self._rows[place]
            self._rows[place] = (at_s, n_bytes, now_s, is_read)

    def prefetched(self) -> Prefetched:
        """All of them."""
        at_s, n_bytes, ended_s, is_read = np.array(self._rows, np.int64).reshape(-1, 4).T.copy()
        refetched = np.array(self.refetched, np.int64).reshape(-1, 2)
        return Prefetched(at_s, n_bytes, ended_s, is_read.astype(np.bool_), refetched)


class Plans(NamedTuple):
    """Plans for the cache, of `capacity_bytes` and watermarks `low` and `high` as the planner is told.

    `planner` is asked at each multiple of `cycle_s` (s since 1970) from `from_s` on. Its pins are no victims,
    its evictions are the first victims, and its prefetches begin at once.
    """

    planner: Planner
    capacity_bytes: int
    low: float
    high: float
    cycle_s: int
    from_s: int


class PlannedCache(DelayedCache):
    """Plans from the first boundary after `start_s` on, the time of the first read."""

    def __init__(
        self,
        steward: Steward,
        sizes: list[int],
        capacity_bytes: int,
        delays: Delays,
        plans: Plans,
        *,
        start_s: int,
    ) -> None:
        super().__init__(steward, sizes, capacity_bytes, delays)
        self._plans = plans
        self._inflows: list[int] = []
        first_s = -(-max(start_s, plans.from_s) // plans.cycle_s) * plans.cycle_s
        self._at(first_s - plans.cycle_s, lambda _: self._start_cycle())
        self._at(first_s, self._plan)

    def _start_cycle(self) -> None:
        self._inflow_bytes = 0

    def _plan(self, now_s: int) -> None:
        """A boundary: ask for the plan, and begin to carry it out."""
        self._inflows = [*self._inflows, self._inflow_bytes][-max(1, DAY_S // self._plans.cycle_s) :]
        actions = self._plans.planner.actions(self._state(now_s))
        self._start_cycle()
        self._steward.evict_first(actions.evict.tolist())
        self._pinned.difference_update(actions.unpin.tolist())
        self._pinned.update(file for file in actions.pin.tolist() if self._holds(file))
        self._steward.pin(self._pinned)
        coming = [file for file in actions.prefetch.tolist() if not self._holds(file)]
        if self._delays.look_s:
            self._look(now_s, sum(self._sizes[file] for file in coming))
        for file in coming:
            self._later(now_s, self._delays.fetch_s, partial(self._come, file))
        self._at(now_s + self._plans.cycle_s, self._plan)

    def _state(self, now_s: int) -> CacheState:
        """The cache as the planner sees it; the age at which files are purged is unknown."""
        held = np.array(self._held, np.int64)
        item = np.flatnonzero(held >= 0)
        last_use_s = np.array(self._last_use_s, np.int64)[item]
        is_pinned = np.zeros(held.size, np.bool_)
        is_pinned[np.array([*self._pinned], np.int64)] = True
        return CacheState(
            as_of_s=now_s,
            capacity_bytes=self._plans.capacity_bytes,
            low_watermark=self._plans.low,
            high_watermark=self._plans.high,
            item=item,
            bytes_on_disk=held[item],
            last_access_s=last_use_s,
            pinned=is_pinned[item],
            is_open=last_use_s > now_s,
            inflow_bytes=self._inflow_bytes,
            peak_inflow_bytes=peak_inflow(self._inflows, self._plans.cycle_s),
            lru_age_s=None,
            sure_inflow_bytes=sure_inflow(self._inflows, self._plans.cycle_s),
        )
