"""A policy that drives a `Steward` through a trace, with the delays of a live cache."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from features.arrays import BoolArray, IntArray
from features.times import DAY_S
from replay.planner import CacheState, Planner, peak_inflow, sure_inflow
from replay.policies.policy import Ahead, Prefetched, Served
from replay.steward.ahead import Fetching
from replay.steward.lru import Lru
from replay.steward.order import EvictionOrder
from replay.steward.steward import Steward
from replay.story import Story, check_fits
from replay.trace import Trace

_NOT_YET = np.iinfo(np.int64).max


class Delays(NamedTuple):
    """Seconds that things take beside a live cache; all zero: it decides at each read.

    `seen_s`: until a read and the file that it brought are known; `look_s`: between two looks at the disk, 0:
    at each read that needs room; `headroom`: share of the capacity that is kept free at a look; `effect_s`:
    until an eviction has taken effect; `open_s`: that a file is open from a read on. Open files stay.
    `fetch_s`: until a file that is fetched ahead has come.
    """

    seen_s: int = 0
    look_s: int = 0
    headroom: float = 0.0
    effect_s: int = 0
    open_s: int = 0
    fetch_s: int = 0


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


_ABSENT = -1
NO_DELAY = Delays()
XCACHE = Delays(seen_s=60, look_s=60, headroom=0.01, effect_s=5, open_s=600, fetch_s=60)
"""A steward that looks once a minute; reads are reported by then, and jobs read a file for ten minutes."""


class Replayed:
    """The policy: `order` makes the order for a capacity. When it is late, the cache's own LRU makes room.

    Files are fetched whole, as a `Policy`; `InBlocks` fetches what is read of them. `fetching`: how files are
    fetched ahead, None: not at all. `plans`: what acts on the same cache, None: nothing.
    """

    def __init__(
        self,
        story: Story,
        order: Callable[[int], EvictionOrder],
        delays: Delays = NO_DELAY,
        fetching: Fetching | None = None,
        plans: Plans | None = None,
    ) -> None:
        self._story, self._order, self._delays = story, order, delays
        self._fetching, self._plans = fetching, plans

    def __call__(self, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int | Ahead:
        """Replay, marking hits; the peak usage in bytes. Raises InputError."""
        cache = self._cache(trace, capacity_bytes)
        reader, sizes = self._story.reader.tolist(), trace.size_bytes.tolist()
        for i, (file, now_s) in enumerate(zip(trace.item.tolist(), trace.time_s.tolist(), strict=True)):
            hit[i] = cache.read(file, reader[i], now_s, sizes[file]) >= sizes[file]
        if self._fetching is None and self._plans is None:
            return cache.peak_bytes
        return Ahead(cache.peak_bytes, cache.came.prefetched())

    def _cache(self, trace: Trace, capacity_bytes: int) -> _Cache:
        """An empty cache for the files of `trace`, with its steward. Raises InputError."""
        check_fits(self._story, trace)
        order = self._order(capacity_bytes)
        steward = Steward(order, capacity_bytes=capacity_bytes, fetching=self._fetching)
        files = self._story.files
        for dataset, tier, size in zip(
            files.dataset.tolist(), files.tier.tolist(), trace.size_bytes.tolist(), strict=True
        ):
            steward.add(dataset, tier, size)
        cache = _Cache(steward, trace.size_bytes.tolist(), capacity_bytes, self._delays)
        if self._plans is not None:
            cache.begin(self._plans, int(trace.time_s[0]))
        return cache


class InBlocks(Replayed):
    """The policy for files that are fetched by `block_bytes`, as far as they are read, from the beginning."""

    def __init__(
        self,
        story: Story,
        order: Callable[[int], EvictionOrder],
        delays: Delays = NO_DELAY,
        *,
        block_bytes: int,
    ) -> None:
        super().__init__(story, order, delays)
        self._block_bytes = block_bytes

    def serve(self, trace: Trace, capacity_bytes: int) -> Served:
        """Replay, by the bytes that each access reads. Raises InputError."""
        cache = self._cache(trace, capacity_bytes)
        asked, wanted = _requests(trace, self._block_bytes)
        had, fetched = np.empty_like(asked), np.empty_like(asked)
        rows = (column.tolist() for column in (trace.item, trace.time_s, self._story.reader, wanted))
        for i, (file, now_s, reader, n_bytes) in enumerate(zip(*rows, strict=False)):
            had[i] = cache.read(file, reader, now_s, n_bytes)
            fetched[i] = cache.fetched_bytes
        on_disk = np.maximum(had, 0)
        served = np.minimum(asked, on_disk)
        is_kept = fetched >= 0
        missing = np.where(is_kept, fetched, asked - served)
        return Served(cache.peak_bytes, asked, served, missing, had >= wanted)


def _requests(trace: Trace, block_bytes: int) -> tuple[IntArray, IntArray]:
    """Bytes that each access asks for, and those of the blocks that serve it, int64[n] each."""
    sizes = trace.size_bytes[trace.item]
    asked = sizes if trace.read_bytes is None else trace.read_bytes
    return asked, np.minimum(sizes, -(-asked // block_bytes) * block_bytes)


class _Cache:
    """The cache itself, and what reaches the steward when.

    `fetched_bytes`: of the last read; -1: it went past the cache.
    """

    def __init__(self, steward: Steward, sizes: list[int], capacity_bytes: int, delays: Delays) -> None:
        self._sizes = sizes
        self._steward, self._capacity_bytes, self._delays = steward, capacity_bytes, delays
        self._target_bytes = int(capacity_bytes * (1 - delays.headroom))
        self._own = Lru()
        self._held = [_ABSENT] * len(sizes)
        self._open_until_s: dict[int, int] = {}
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._n_due = 0
        self._is_look_due = False
        self._leaving_bytes = 0
        self._used_bytes = 0
        self.peak_bytes = self.fetched_bytes = 0
        self.came = _Came()
        self._pinned, self._away = set[int](), set[int]()
        self._last_use_s = [0] * len(sizes)
        self._inflow_bytes = 0
        self._inflows: list[int] = []

    def begin(self, plans: Plans, start_s: int) -> None:
        """Plan from the first boundary after `start_s` on."""
        first_s = -(-max(start_s, plans.from_s) // plans.cycle_s) * plans.cycle_s
        self._at(first_s - plans.cycle_s, lambda _: self._start_cycle())
        self._at(first_s, partial(self._plan, plans))

    def read(self, file: int, reader: int, now_s: int, wanted: int) -> int:
        """Serve a read of the first `wanted` bytes; the bytes that were on disk, -1 if the file was not."""
        while self._due and self._due[0][0] <= now_s:
            due_s, _, act = heapq.heappop(self._due)
            act(due_s)
        had = self._held[file]
        self.fetched_bytes = 0 if had >= wanted else self._fetch(file, wanted, now_s)
        self.came.end(file, now_s, is_read=True)
        if file in self._away:
            self._away.remove(file)
            self.came.refetched.append((now_s, wanted if self.fetched_bytes < 0 else self.fetched_bytes))
        self._last_use_s[file] = now_s + self._delays.open_s
        self._own.read(file, reader, now_s, is_held=had != _ABSENT)
        if self._delays.open_s:
            self._open_until_s[file] = now_s + self._delays.open_s
        self._later(now_s, self._delays.seen_s, lambda _: self._see(file, reader, now_s))
        return had

    def _fetch(self, file: int, wanted: int, now_s: int) -> int:
        """Bring the first `wanted` bytes if there is room, or can be; the bytes that came, else -1."""
        if wanted > self._capacity_bytes:
            return -1
        n_bytes = wanted - max(0, self._held[file])
        if not self._delays.look_s:
            self._look_for(file, n_bytes, now_s)
        missing = self._used_bytes + n_bytes - self._capacity_bytes
        if missing > 0:
            self._purge(missing, now_s, file)
        if self._used_bytes + n_bytes > self._capacity_bytes:
            return -1
        self._held[file] = wanted
        self._used_bytes += n_bytes
        self._inflow_bytes += n_bytes
        self._own.stored(file, wanted, now_s)
        self.peak_bytes = max(self.peak_bytes, self._used_bytes)
        return n_bytes

    def _look_for(self, file: int, n_bytes: int, now_s: int) -> None:
        """Make room for bytes of a file; what it has on disk stays."""
        if self._held[file] == _ABSENT:
            self._look(now_s, n_bytes)
            return
        self._steward.opened(file)
        self._look(now_s, n_bytes)
        self._steward.closed(file)

    def _see(self, file: int, reader: int, at_s: int) -> None:
        """A read becomes known to the steward, and whether its file is on disk."""
        self._steward.read(file, reader, at_s)
        if self._held[file] != _ABSENT:
            self._steward.stored(file, self._held[file], at_s)
        if self._delays.open_s:
            self._steward.opened(file)
            self._later(at_s, self._delays.open_s, lambda _: self._steward.closed(file))
        seen_s = at_s + self._delays.seen_s
        for ahead in self._steward.fetches(seen_s):
            self._later(seen_s, self._delays.fetch_s, partial(self._come, ahead))
        self._look_later(at_s)

    def _look_later(self, at_s: int) -> None:
        if self._delays.look_s and not self._is_look_due:
            self._is_look_due = True
            self._later(at_s, self._delays.look_s, lambda now_s: self._look(now_s, 0))

    def _come(self, file: int, now_s: int) -> None:
        """A file that is fetched ahead comes, unless a job has brought it; it is known at once."""
        if self._held[file] == _ABSENT:
            size = self._sizes[file]
            if self._fetch(file, size, now_s) >= 0:
                self.came.begin(file, size, now_s)
                self._away.discard(file)
                self._last_use_s[file] = now_s
                self._steward.stored(file, size, now_s)
                self._look_later(now_s)
        self._steward.given_up(file)

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
        if self._held[file] != _ABSENT and self._open_until_s.get(file, now_s) <= now_s:
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

    def _remove(self, file: int, now_s: int) -> None:
        self.came.end(file, now_s, is_read=False)
        self._used_bytes -= self._held[file]
        self._held[file] = _ABSENT
        self._own.removed(file)
        self._steward.removed(file)
        if file in self._pinned:
            self._pinned.remove(file)
            self._steward.pin(self._pinned)

    def _start_cycle(self) -> None:
        self._inflow_bytes = 0

    def _plan(self, plans: Plans, now_s: int) -> None:
        """A boundary: ask for the plan, and begin to carry it out."""
        self._inflows = [*self._inflows, self._inflow_bytes][-max(1, DAY_S // plans.cycle_s) :]
        actions = plans.planner.actions(self._state(plans, now_s))
        self._start_cycle()
        self._steward.evict_first(actions.evict.tolist())
        self._pinned.difference_update(actions.unpin.tolist())
        self._pinned.update(file for file in actions.pin.tolist() if self._held[file] != _ABSENT)
        self._steward.pin(self._pinned)
        coming = [file for file in actions.prefetch.tolist() if self._held[file] == _ABSENT]
        if self._delays.look_s:
            self._look(now_s, sum(self._sizes[file] for file in coming))
        for file in coming:
            self._later(now_s, self._delays.fetch_s, partial(self._come, file))
        self._at(now_s + plans.cycle_s, partial(self._plan, plans))

    def _state(self, plans: Plans, now_s: int) -> CacheState:
        """What the planner is told; nobody knows at which age a file would be purged."""
        held = np.array(self._held, np.int64)
        item = np.flatnonzero(held != _ABSENT)
        last_use_s = np.array(self._last_use_s, np.int64)[item]
        is_pinned = np.zeros(held.size, np.bool_)
        is_pinned[np.array([*self._pinned], np.int64)] = True
        return CacheState(
            as_of_s=now_s,
            capacity_bytes=plans.capacity_bytes,
            low_watermark=plans.low,
            high_watermark=plans.high,
            item=item,
            bytes_on_disk=held[item],
            last_access_s=last_use_s,
            pinned=is_pinned[item],
            is_open=last_use_s > now_s,
            inflow_bytes=self._inflow_bytes,
            peak_inflow_bytes=peak_inflow(self._inflows, plans.cycle_s),
            lru_age_s=None,
            sure_inflow_bytes=sure_inflow(self._inflows, plans.cycle_s),
        )

    def _later(self, now_s: int, delay_s: int, act: Callable[[int], None]) -> None:
        """Do something after a while; at once if there is no delay."""
        if not delay_s:
            act(now_s)
            return
        self._at(now_s + delay_s, act)

    def _at(self, time_s: int, act: Callable[[int], None]) -> None:
        self._n_due += 1
        heapq.heappush(self._due, (time_s, self._n_due, act))


class _Came:
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
