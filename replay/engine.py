"""The replay of XCaches, with or without planners: this loop owns the time, the planner decides."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from features.errors import ConfigError, InputError
from features.times import DAY_S
from replay.admission import refused
from replay.config import CacheConfig
from replay.kernels import disk as kernels
from replay.kernels import placing
from replay.kernels.disk import OutcomeArray
from replay.kernels.purge import Part, Record, run_checks, serve
from replay.kernels.tally import HOUR_S, Tally, empty_tally
from replay.planner import Actions, BoolArray, CacheState, IntArray, Planner, peak_inflow
from replay.result import Placed, Result, tallied
from replay.trace import IndexArray, Trace
from replay.window import Window, window

NO_LIMIT = 2**62


def simulate(
    trace: Trace,
    config: CacheConfig,
    *,
    planner: Planner | None = None,
    cycle_s: int = 4 * HOUR_S,
    plan_from_s: int | None = None,
    count_from_s: int | None = None,
    policy: str | None = None,
    outcome: OutcomeArray | None = None,
) -> Result:
    """The outcome of XCache's LRU by watermarks, with `planner` asked at each plan boundary.

    Boundaries are the multiples of `cycle_s` (s since 1970) between the first and the last access, not
    before `plan_from_s`. Accesses before `count_from_s` only warm the cache (None: all are counted);
    what was prefetched before it and is still unread then is charged to its day. `policy` names the result
    (default `lru`, or `lru+plan`). `outcome`: uint8 per access, filled with bits of `replay.kernels.disk`.

    At one second the order is: purge check, boundary, accesses. At a boundary: evict, unpin, prefetch,
    pin. A miss is fetched and charged, whole or by the block; one that does not fit is read past the cache.
    Files are open from an access to its close, if the trace says when that is, and a purge passes them by. An
    evicted file loses its pin. A pin is a touch at every boundary, as on a real XCache: it makes the file
    young, and a purge may still take it. Raises ConfigError, InputError.
    """
    started = time.perf_counter()
    run = Run(trace, config, window(trace, count_from_s), planner, outcome=outcome)
    drive([run], cycle_s=cycle_s, plan_from_s=plan_from_s, span=(int(trace.time_s[0]), int(trace.time_s[-1])))
    name = policy or ("lru" if planner is None else "lru+plan")
    return run.result(name, time.perf_counter() - started)


def drive(
    runs: Sequence[Run],
    *,
    cycle_s: int,
    plan_from_s: int | None,
    span: tuple[int, int],
    wan_bytes_per_s: int | None = None,
) -> None:
    """Take `runs` through the seconds of `span`, boundary by boundary if one of them has a planner.

    `wan_bytes_per_s` is what they may prefetch together, less the demand of the cycle before; it is shared by
    capacity. Raises ConfigError.
    """
    if cycle_s <= 0:
        raise ConfigError("cycle_s", f"{cycle_s} must be above 0")
    start, end = span
    if any(run.planner is not None for run in runs):
        first = -(-max(start, plan_from_s or 0) // cycle_s) * cycle_s
        for run in runs:
            run.until(min(first - cycle_s, end + 1))
            run.start_cycle()
        for as_of_s in range(first, end + 1, cycle_s):
            for run in runs:
                run.until(as_of_s)
            for run, budget in zip(runs, _budgets(runs, cycle_s, wan_bytes_per_s), strict=True):
                run.plan(as_of_s, budget, cycle_s)
    for run in runs:
        run.until(end + 1)


def _budgets(runs: Sequence[Run], cycle_s: int, wan_bytes_per_s: int | None) -> list[int]:
    """Bytes that each run may prefetch now: the least of its own limit and its share of the common one."""
    shared = NO_LIMIT
    if wan_bytes_per_s is not None:
        shared = max(0, wan_bytes_per_s * cycle_s - sum(run.inflow_bytes for run in runs))
    capacity = sum(run.config.capacity_bytes for run in runs)
    budgets = []
    for run in runs:
        limit = run.config.wan_bytes_per_s
        own = NO_LIMIT if limit is None else max(0, limit * cycle_s - run.inflow_bytes)
        budgets.append(min(own, shared * run.config.capacity_bytes // capacity))
    return budgets


class Run:
    """One cache's replay in progress; `until` moves its clock, which never goes back."""

    def __init__(
        self,
        trace: Trace,
        config: CacheConfig,
        counted: Window,
        planner: Planner | None,
        *,
        outcome: OutcomeArray | None = None,
        elsewhere: BoolArray | None = None,
    ) -> None:
        """`elsewhere`: files that this cache never holds, since another one does."""
        self.config = config
        self.planner = planner
        self._trace = trace
        self._counted = counted
        self._rules = _rules(config)
        barred = refused(trace.names, config.never_cache, trace.n_items)
        if elsewhere is not None:
            barred |= elsewhere
        self._disk = kernels.empty_disk(trace.size_bytes, barred, self._rules, int(trace.time_s[0]))
        self._reads = _reads(trace, config)
        self._outcome = np.zeros(trace.n_accesses, np.uint8) if outcome is None else outcome
        self._served = 0
        self._warming = empty_tally(trace.time_s[: counted.first])
        self._tally = _shifted(empty_tally(trace.time_s[counted.first :]), counted.first)
        self._counting = False
        self._fetched: list[tuple[int, int]] = []
        self._over_limit = 0
        self._inflows: list[int] = []

    @property
    def inflow_bytes(self) -> int:
        """Bytes that came in during the cycle so far."""
        return int(self._disk.sums[kernels.INFLOW])

    def until(self, time_s: int) -> None:
        """Serve every access before `time_s`, then run the checks due up to it."""
        if not self._counting and self._counted.count_from_s <= time_s:
            self._advance(self._counted.count_from_s, self._warming)
            self._start_counting()
        self._advance(time_s, self._tally if self._counting else self._warming)

    def start_cycle(self) -> None:
        """Count the inflow from here."""
        self._disk.sums[kernels.INFLOW] = 0

    def plan(self, as_of_s: int, budget: int, cycle_s: int) -> None:
        """Ask the planner and do what it says, prefetching at most `budget` bytes."""
        if self.planner is None:
            return
        self._inflows = [*self._inflows, self.inflow_bytes][-max(1, DAY_S // cycle_s) :]
        actions = self.planner.actions(self._state(as_of_s, peak_inflow(self._inflows, cycle_s)))
        self.start_cycle()
        disk, reads = self._disk, self._reads
        placing.evict(disk, self._ids(actions, "evict"))
        placing.unpin(disk, self._ids(actions, "unpin"))
        wanted = self._ids(actions, "prefetch")
        fetched, over = placing.prefetch(disk, self._rules, reads, wanted, placing.Limits(as_of_s, budget))
        if fetched:
            self._fetched.append((as_of_s, fetched))
        self._over_limit += over
        placing.pin(disk, reads, self._ids(actions, "pin"), as_of_s)

    def result(self, name: str, seconds: float) -> Result:
        """The counted window's outcome."""
        disk = self._disk
        sums = disk.sums
        table = np.array(self._fetched, np.int64).reshape(-1, 2)
        return tallied(
            name,
            self._tally,
            capacity_bytes=self.config.capacity_bytes,
            count_from_s=self._counted.count_from_s,
            peak_usage_bytes=int(sums[kernels.PEAK]),
            seconds=seconds,
            placed=Placed(
                table[:, 0].copy(),
                table[:, 1].copy(),
                prefetch_read_bytes=int(sums[kernels.PREFETCH_READ]),
                wasted_bytes=int(sums[kernels.WASTED]) + _unread(disk),
                refetch_bytes=int(sums[kernels.REFETCH]),
                over_limit_bytes=self._over_limit,
            ),
            bypassed_bytes=int(sums[kernels.BYPASS]),
            ssd_hit_bytes=int(sums[kernels.SSD_HIT]),
            timed=True,
        )

    def _start_counting(self) -> None:
        # What came before the window and is not yet read is paid inside it: no free start for a planner,
        # and the bound, which gives away only files read before, stays a bound.
        disk = self._disk
        sums = disk.sums
        carried = _unread(disk)
        self._fetched = [(self._counted.count_from_s, carried)] if carried else []
        self._over_limit = 0
        for key in (
            *(kernels.WASTED, kernels.PREFETCH_READ, kernels.REFETCH),
            *(kernels.BYPASS, kernels.SSD_HIT),
        ):
            sums[key] = 0
        sums[kernels.PEAK] = sums[kernels.USED]
        self._counting = True

    def _advance(self, time_s: int, tally: Tally) -> None:
        stop = self._trace.first_at(time_s)
        if stop > self._served:
            record = Record(self._outcome, tally)
            serve(self._disk, self._rules, self._reads, record, Part(self._served, stop))
            self._served = stop
        run_checks(self._disk, self._rules, self._reads, time_s)

    def _state(self, as_of_s: int, peak_inflow_bytes: int) -> CacheState:
        disk = self._disk
        item = np.flatnonzero(disk.entry != kernels.ABSENT)
        last_use = self._last_use(disk.entry[item])
        by_access = disk.entry[item] < self._trace.n_accesses
        age = int(disk.sums[kernels.LRU_AGE])
        return CacheState(
            as_of_s=as_of_s,
            capacity_bytes=self.config.capacity_bytes,
            low_watermark=self.config.low_watermark,
            high_watermark=self.config.high_watermark,
            item=item,
            bytes_on_disk=disk.held[item],
            last_access_s=last_use,
            pinned=(disk.flags[item] & kernels.PINNED) != 0,
            is_open=by_access & (last_use >= as_of_s),
            inflow_bytes=self.inflow_bytes,
            peak_inflow_bytes=peak_inflow_bytes,
            lru_age_s=None if age == kernels.NO_AGE else age,
        )

    def _last_use(self, entry: IndexArray) -> IntArray:
        """Times of uses: closes of accesses (those of open files are yet to come), or touches."""
        n = self._trace.n_accesses
        closes = self._reads.close_time[np.minimum(entry, n - 1)]
        return np.where(entry < n, closes, self._disk.touches[np.maximum(entry - n, 0), 1])

    def _ids(self, actions: Actions, action: str) -> IntArray:
        ids: IntArray = np.asarray(getattr(actions, action), np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= self._trace.n_items):
            raise InputError(
                f"the planner's {action} list names item {ids.min()} or {ids.max()}; "
                f"items are 0 … {self._trace.n_items - 1}"
            )
        return ids


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


def _reads(trace: Trace, config: CacheConfig) -> kernels.Reads:
    whole = trace.read_bytes is None or config.block_bytes is None
    read = np.zeros(0, np.int64) if whole else trace.read_bytes
    assert read is not None
    if trace.close_s is None:
        rank: IndexArray = np.zeros(0, np.int32)
        return kernels.Reads(trace.time_s, trace.item, read, rank, trace.time_s, trace.item)
    order = _by_close(trace.close_s)
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return kernels.Reads(trace.time_s, trace.item, read, rank, trace.close_s[order], trace.item[order])


def _by_close(close_s: IntArray) -> IntArray:
    """The accesses in the order of their closes, ties as they come.

    Time and place are packed in one number, which sorts several times faster than an argsort.
    """
    n_bits = int(close_s.size).bit_length()
    first = int(close_s.min())
    if (int(close_s.max()) - first).bit_length() + n_bits > 62:
        return np.argsort(close_s, kind="stable")
    packed = ((close_s - first) << n_bits) | np.arange(close_s.size)
    packed.sort()
    packed &= (1 << n_bits) - 1
    return packed


def _unread(disk: kernels.Disk) -> int:
    """Bytes that were prefetched and are still unread on the disk."""
    return int(disk.held[(disk.flags & kernels.FRESH) != 0].sum())


def _shifted(tally: Tally, first: int) -> Tally:
    return Tally(tally.hour, tally.first + first, tally.sums)
