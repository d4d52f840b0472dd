"""The replay of XCaches, with or without planners: the loop advances the time, the planner decides."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.errors import ConfigError
from features.common.times import DAY_S, HOUR_S
from replay.config import CacheConfig, refused
from replay.kernels import disk as kernels
from replay.kernels import purge
from replay.kernels.accesses import FETCHED, Part, Tally, empty_tally
from replay.kernels.disk import AccessLog, OutcomeArray
from replay.kernels.purge import Record, run_checks, serve
from replay.planner import CacheState, Planner, checked, peak_inflow, sure_inflow
from replay.result import Placed, Result, tallied
from replay.trace import IndexArray, Trace, Window, window

NEVER_S = 2**62
_COUNTED = [kernels.WASTED, kernels.PREFETCH_READ, kernels.REFETCH, kernels.BYPASS, kernels.SSD_HIT]
"""The sums that begin at the counted window."""


def simulate(
    trace: Trace,
    config: CacheConfig,
    *,
    planner: Planner | None = None,
    cycle_s: int = 4 * HOUR_S,
    plan_from_s: int | None = None,
    count_from_s: int | None = None,
    outcome: OutcomeArray | None = None,
) -> Result:
    """Replay `trace` through one XCache; `planner` is asked at each plan boundary.

    Boundaries are the multiples of `cycle_s` (s since 1970) between the first and the last access, not
    before `plan_from_s`. Accesses before `count_from_s` only warm the cache (None: all are counted).
    Bytes prefetched before `count_from_s` and still unread then are charged to that day. `outcome`: uint8 per
    access, filled with the outcomes of `replay.kernels.disk`. The result is called `lru`, or `lru+plan`.

    Within one second the order is: purge check, boundary, accesses. At a boundary: evict, unpin, prefetch,
    pin. A miss is fetched and charged, whole or by the block; a file that does not fit is read past the
    cache. A file is open from an access to its close, if the trace states closes, and a purge passes it over.
    An evicted file loses its pin. A pin is a touch at every boundary, as on a real XCache: it makes the file
    young, but a purge may still take it. Raises ConfigError, InputError.
    """
    run = Run(
        trace,
        config,
        window(trace, count_from_s),
        planner,
        cycle_s=cycle_s,
        plan_from_s=plan_from_s,
        outcome=outcome,
    )
    drive([run], int(trace.time_s[-1]) + 1)
    return run.result("lru" if planner is None else "lru+plan")


def drive(
    runs: Sequence[Run],
    until_s: int,
    *,
    workers: int = 1,
    on_boundary: Callable[[int], None] = lambda _: None,
) -> None:
    """Advance `runs` to `until_s`, in `workers` threads: all plan at one boundary before any does at a later.

    So planners may share what they know at a time. `on_boundary`: called with each time at which all due have
    planned.
    """
    with ThreadPoolExecutor(workers) as pool:
        at_once = map if workers == 1 else pool.map
        while (boundary_s := min((run.boundary_s for run in runs), default=NEVER_S)) < until_s:
            due = [run for run in runs if run.boundary_s == boundary_s]
            deque(at_once(Run.step, due), maxlen=0)
            on_boundary(boundary_s)
        deque(at_once(lambda run: run.until(until_s), runs), maxlen=0)


class Run:
    """One cache's replay in progress; `until` advances its clock, which never goes back.

    `boundary_s`: when `step` plans next; `outcome`: uint8 per access, as `simulate` has it; `seconds`,
    `cpu_s`: what the replay took so far; of replays in step, who asks first pays for what they share.
    """

    def __init__(
        self,
        trace: Trace,
        config: CacheConfig,
        counted: Window,
        planner: Planner | None,
        *,
        cycle_s: int = 4 * HOUR_S,
        plan_from_s: int | None = None,
        outcome: OutcomeArray | None = None,
        elsewhere: BoolArray | None = None,
    ) -> None:
        """`elsewhere`: files that another cache holds, so that this one never does. Raises ConfigError."""
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        if cycle_s <= 0:
            raise ConfigError("cycle_s", f"{cycle_s} must be above 0")
        self.config = config
        self.planner = planner
        first_s = -(-max(int(trace.time_s[0]), plan_from_s or 0) // cycle_s) * cycle_s
        self.boundary_s = NEVER_S if planner is None else first_s
        # The first plan knows what came in since one cycle before it, and each later one since the last.
        self._cycle_s, self._inflow_since_s = cycle_s, self.boundary_s - cycle_s
        self._trace = trace
        self._counted = counted
        self._rules = _rules(config)
        never_held = refused(trace.names, config.never_cache, trace.n_items)
        if elsewhere is not None:
            never_held |= elsewhere
        self._disk = kernels.empty_disk(trace.size_bytes, never_held, self._rules, int(trace.time_s[0]))
        self._log = access_log(trace, config)
        self.outcome = np.zeros(trace.n_accesses, np.uint8) if outcome is None else outcome
        self._served = 0
        self._warming = empty_tally(trace.time_s[: counted.first])
        self._tally = _tally(trace, counted)
        self._counting = False
        self._prefetches: list[tuple[int, int]] = []
        self._inflows: list[int] = []
        self._closed = 0
        self._last_use_s = np.zeros(trace.n_items, np.int64)
        self.seconds, self.cpu_s = time.perf_counter() - began_s, time.thread_time() - began_cpu_s

    @property
    def counted_wan_bytes(self) -> int:
        """Bytes over the WAN since counting began: of misses and prefetches."""
        return int(self._tally.sums[:, FETCHED].sum()) + sum(fetched for _, fetched in self._prefetches)

    def count_from(self, count_from_s: int) -> None:
        """Count from then on, and nothing before; raises InputError without an access from then on."""
        self._counted = window(self._trace, count_from_s)
        self._warming, self._tally = self._tally, _tally(self._trace, self._counted)
        self._counting = False

    def until(self, time_s: int) -> None:
        """Serve every access before `time_s`, at most the next boundary, then run the checks due up to it."""
        assert time_s <= self.boundary_s
        with self._timed():
            self._until(time_s)

    def step(self) -> None:
        """Advance to the next boundary, ask the planner and carry out its actions. Raises InputError."""
        with self._timed():
            self._until(self.boundary_s)
            self._plan(self.boundary_s)
        self.boundary_s += self._cycle_s

    @contextmanager
    def _timed(self) -> Iterator[None]:
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        yield
        self.seconds += time.perf_counter() - wall_s
        self.cpu_s += time.thread_time() - cpu_s

    def _until(self, time_s: int) -> None:
        if self._inflow_since_s <= time_s:
            since_s, self._inflow_since_s = self._inflow_since_s, NEVER_S
            self._until(since_s)
            self._disk.sums[kernels.INFLOW] = 0
        if not self._counting and self._counted.count_from_s <= time_s:
            self._advance(self._counted.count_from_s, self._warming)
            self._start_counting()
        self._advance(time_s, self._tally if self._counting else self._warming)

    def _plan(self, as_of_s: int) -> None:
        assert self.planner is not None
        disk, log, inflow_bytes = self._disk, self._log, int(self._disk.sums[kernels.INFLOW])
        self._inflows = [*self._inflows, inflow_bytes][-max(1, DAY_S // self._cycle_s) :]
        actions = checked(self.planner.actions(self._state(as_of_s)), self._trace.n_items)
        disk.sums[kernels.INFLOW] = 0
        purge.evict(disk, actions.evict)
        purge.unpin(disk, actions.unpin)
        prefetched = actions.prefetch
        self._last_use_s[prefetched[disk.latest_use[prefetched] == kernels.ABSENT]] = as_of_s
        if fetched := purge.prefetch(disk, self._rules, log, prefetched, as_of_s):
            self._prefetches.append((as_of_s, fetched))
        purge.pin(disk, log, actions.pin, as_of_s)

    def result(self, name: str) -> Result:
        """The outcome of the counted window."""
        disk = self._disk
        sums = disk.sums
        at_s, prefetched = np.array(self._prefetches, np.int64).reshape(-1, 2).T.copy()
        return tallied(
            name,
            self._tally,
            capacity_bytes=self.config.capacity_bytes,
            count_from_s=self._counted.count_from_s,
            peak_usage_bytes=int(sums[kernels.PEAK]),
            seconds=self.seconds,
            placed=Placed(
                at_s,
                prefetched,
                prefetch_read_bytes=int(sums[kernels.PREFETCH_READ]),
                wasted_bytes=int(sums[kernels.WASTED]) + _unread_bytes(disk),
                refetch_bytes=int(sums[kernels.REFETCH]),
            ),
            bypassed_bytes=int(sums[kernels.BYPASS]),
            ssd_hit_bytes=int(sums[kernels.SSD_HIT]),
            timed=True,
        )

    def _start_counting(self) -> None:
        # Prefetched bytes that are still unread are charged to the window. Otherwise a planner could prefetch
        # for free before it, and the bound, in which only files read before are free, would be no bound.
        sums = self._disk.sums
        carried = _unread_bytes(self._disk)
        self._prefetches = [(self._counted.count_from_s, carried)] if carried else []
        sums[_COUNTED] = 0
        sums[kernels.PEAK] = sums[kernels.USED]
        self._counting = True

    def _advance(self, time_s: int, tally: Tally) -> None:
        stop = self._trace.first_at(time_s)
        if stop > self._served:
            record = Record(self.outcome, tally)
            serve(self._disk, self._rules, self._log, record, Part(self._served, stop))
            self._served = stop
        run_checks(self._disk, self._rules, self._log, time_s)

    def _state(self, as_of_s: int) -> CacheState:
        disk, cycle_s = self._disk, self._cycle_s
        item = np.flatnonzero(disk.latest_use != kernels.ABSENT)
        use = disk.latest_use[item]
        by_access = use < self._trace.n_accesses
        last_use_s = self._time_of_use(item, use, as_of_s)
        age = int(disk.sums[kernels.LRU_AGE])
        return CacheState(
            as_of_s=as_of_s,
            capacity_bytes=self.config.capacity_bytes,
            low_watermark=self.config.low_watermark,
            high_watermark=self.config.high_watermark,
            item=item,
            bytes_on_disk=disk.held[item],
            last_access_s=last_use_s,
            pinned=(disk.flags[item] & kernels.PINNED) != 0,
            is_open=by_access & (last_use_s >= as_of_s),
            inflow_bytes=int(disk.sums[kernels.INFLOW]),
            peak_inflow_bytes=peak_inflow(self._inflows, cycle_s),
            lru_age_s=None if age == kernels.NONE else age,
            sure_inflow_bytes=sure_inflow(self._inflows, cycle_s),
        )

    def _time_of_use(self, item: IntArray, use: IndexArray, as_of_s: int) -> IntArray:
        """When each file was last used: its last access closes (perhaps later), or a plan fetched it."""
        log, n = self._log, self._trace.n_accesses
        part = slice(self._closed, int(np.searchsorted(log.close_time, as_of_s)))
        self._last_use_s[log.closed[part]], self._closed = log.close_time[part], part.stop
        return np.where(use < n, log.close_time[np.minimum(use, n - 1)], self._last_use_s[item])


def _tally(trace: Trace, counted: Window) -> Tally:
    return empty_tally(trace.time_s[counted.first :], first=counted.first)


def _rules(config: CacheConfig) -> kernels.Rules:
    capacity = config.capacity_bytes
    return kernels.Rules(
        capacity,
        int(config.low_watermark * capacity),
        int(config.high_watermark * capacity),
        config.purge_interval_s,
        config.cold_age_s or 0,
        config.cold_every,
        config.block_bytes or 0,
        config.ssd_bytes,
    )


def _unread_bytes(disk: kernels.Disk) -> int:
    """Prefetched bytes on the disk that nobody has read yet."""
    return int(disk.held[(disk.flags & kernels.PREFETCHED) != 0].sum())


def access_log(trace: Trace, config: CacheConfig) -> AccessLog:
    """The accesses of `trace` for a cache with `config`; without blocks, files are read whole."""
    read = trace.read_bytes
    if read is None or config.block_bytes is None:
        read = np.zeros(0, np.int64)
    return AccessLog(trace.time_s, trace.item, read, *trace.closes)
