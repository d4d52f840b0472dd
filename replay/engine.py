"""The replay of one XCache, with or without a planner: this loop owns the time, the planner decides."""

from __future__ import annotations

import time

import numpy as np

from features.errors import ConfigError, InputError
from replay.config import CacheConfig
from replay.kernels import disk as kernels
from replay.planner import Actions, CacheState, IntArray, Planner
from replay.result import Fill, Placed, Result, summarise
from replay.trace import Trace
from replay.window import Window, window

HOUR_S = 3600


def simulate(
    trace: Trace,
    config: CacheConfig,
    *,
    planner: Planner | None = None,
    cycle_s: int = 4 * HOUR_S,
    plan_from_s: int | None = None,
    count_from_s: int | None = None,
    policy: str | None = None,
) -> Result:
    """The outcome of XCache's LRU by watermarks, with `planner` asked at each plan boundary.

    Boundaries are the multiples of `cycle_s` (s since 1970) between the first and the last access, not
    before `plan_from_s`. Accesses before `count_from_s` only warm the cache (None: all are counted);
    what was prefetched before it and is still unread then is charged to its day. `policy` names the result
    (default `lru`, or `lru+plan`).

    At one second the order is: purge check, boundary, accesses. At a boundary: evict, unpin, prefetch,
    pin. A miss is fetched and charged whole; one that does not fit is read past the cache. An evicted file
    loses its pin. A pin is a touch at every boundary, as on a real XCache: it makes the file young, and a
    purge may still take it. Raises ConfigError, InputError.
    """
    if cycle_s <= 0:
        raise ConfigError("cycle_s", f"{cycle_s} must be above 0")
    started = time.perf_counter()
    run = _Run(trace, config, window(trace, count_from_s))
    end = int(trace.time_s[-1])
    if planner is None:
        run.until(end + 1)
    else:
        begin = max(int(trace.time_s[0]), plan_from_s or 0)
        first = -(-begin // cycle_s) * cycle_s
        run.until(min(first - cycle_s, end + 1))
        run.start_cycle()
        for as_of_s in range(first, end + 1, cycle_s):
            run.until(as_of_s)
            run.plan(planner, as_of_s)
        run.until(end + 1)
    name = policy or ("lru" if planner is None else "lru+plan")
    return run.result(name, time.perf_counter() - started)


class _Run:
    """One replay in progress; `until` moves its clock, which never goes back."""

    def __init__(self, trace: Trace, config: CacheConfig, counted: Window) -> None:
        capacity = config.capacity_bytes
        self._trace = trace
        self._config = config
        self._counted = counted
        self._rules = kernels.Rules(
            capacity,
            int(config.low_watermark * capacity),
            int(config.high_watermark * capacity),
            config.purge_interval_s,
        )
        start = int(trace.time_s[0])
        self._disk = kernels.empty_disk(trace.size_bytes, self._rules, start)
        outcome = np.zeros(trace.n_accesses, np.uint8)
        self._reads = kernels.Reads(trace.time_s, trace.item, outcome)
        self._served = 0
        self._fill: list[tuple[int, int]] = []
        self._fetched: list[tuple[int, int]] = []
        self._next_hour = (start // HOUR_S + 1) * HOUR_S
        self._counting = False

    def until(self, time_s: int) -> None:
        """Serve every access before `time_s`, then run the checks due up to it."""
        if not self._counting and self._counted.count_from_s <= time_s:
            self._advance(self._counted.count_from_s)
            self._start_counting()
        self._advance(time_s)

    def start_cycle(self) -> None:
        """Count the inflow from here."""
        self._disk.sums[kernels.INFLOW] = 0

    def plan(self, planner: Planner, as_of_s: int) -> None:
        """Ask `planner` and do what it says."""
        actions = planner.actions(self._state(as_of_s))
        self.start_cycle()
        disk = self._disk
        kernels.evict(disk, self._ids(actions, "evict"))
        disk.pinned[self._ids(actions, "unpin")] = False
        fetched = kernels.prefetch(disk, self._rules, self._ids(actions, "prefetch"), as_of_s)
        if fetched:
            self._fetched.append((as_of_s, fetched))
        kernels.pin(disk, self._ids(actions, "pin"), as_of_s)

    def result(self, name: str, seconds: float) -> Result:
        """The counted window's outcome."""
        disk, trace, first = self._disk, self._trace, self._counted.first
        outcome = self._reads.outcome[first:]
        size = trace.size_bytes[trace.item[first:]]
        hit = (outcome & kernels.HIT) != 0
        fetched_at, fetched = _columns(self._fetched)
        return summarise(
            name,
            trace,
            capacity_bytes=self._config.capacity_bytes,
            count_from_s=self._counted.count_from_s,
            hit=hit,
            hit_bytes=np.where(hit, size, 0),
            peak_usage_bytes=int(disk.sums[kernels.PEAK]),
            seconds=seconds,
            bypassed_bytes=int(size[(outcome & kernels.BYPASSED) != 0].sum()),
            placed=Placed(
                fetched_at,
                fetched,
                prefetch_read_bytes=int(disk.sums[kernels.PREFETCH_READ]),
                wasted_bytes=int(disk.sums[kernels.WASTED] + disk.size[disk.fresh].sum()),
                refetch_bytes=int(size[(outcome & kernels.REFETCHED) != 0].sum()),
            ),
            fill=Fill(*_columns(self._fill)),
        )

    def _start_counting(self) -> None:
        # What came before the window and is not yet read is paid inside it: no free start for a planner,
        # and the bound, which gives away only files read before, stays a bound.
        disk = self._disk
        carried = int(disk.size[disk.fresh].sum())
        self._fetched = [(self._counted.count_from_s, carried)] if carried else []
        disk.sums[kernels.WASTED] = disk.sums[kernels.PREFETCH_READ] = 0
        disk.sums[kernels.PEAK] = disk.sums[kernels.USED]
        self._counting = True

    def _advance(self, time_s: int) -> None:
        while self._next_hour <= time_s:
            self._serve_before(self._next_hour)
            if self._next_hour >= self._counted.count_from_s:
                self._fill.append((self._next_hour, int(self._disk.sums[kernels.USED])))
            self._next_hour += HOUR_S
        self._serve_before(time_s)
        kernels.run_checks(self._disk, self._rules, time_s)

    def _serve_before(self, time_s: int) -> None:
        stop = self._trace.first_at(time_s)
        if stop > self._served:
            kernels.serve(self._disk, self._rules, self._reads, self._served, stop)
            self._served = stop
        kernels.run_checks(self._disk, self._rules, time_s - 1)

    def _state(self, as_of_s: int) -> CacheState:
        disk = self._disk
        item = np.flatnonzero(disk.resident)
        age = int(disk.sums[kernels.LRU_AGE])
        return CacheState(
            as_of_s=as_of_s,
            capacity_bytes=self._config.capacity_bytes,
            low_watermark=self._config.low_watermark,
            high_watermark=self._config.high_watermark,
            item=item,
            bytes_on_disk=disk.size[item],
            last_access_s=disk.last_access[item],
            pinned=disk.pinned[item],
            inflow_bytes=int(disk.sums[kernels.INFLOW]),
            lru_age_s=None if age == kernels.NO_AGE else age,
        )

    def _ids(self, actions: Actions, action: str) -> IntArray:
        ids: IntArray = np.asarray(getattr(actions, action), np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= self._trace.n_items):
            raise InputError(
                f"the planner's {action} list names item {ids.min()} or {ids.max()}; "
                f"items are 0 … {self._trace.n_items - 1}"
            )
        return ids


def _columns(pairs: list[tuple[int, int]]) -> tuple[IntArray, IntArray]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()
