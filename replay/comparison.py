"""Policies and bounds side by side on a trace: every command that compares policies calls `compare`."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.errors import ConfigError
from features.common.progress import Advance, unwatched
from features.common.times import HOUR_S
from features.results import LRU
from replay.bounds import byte_bound, object_bound
from replay.config import CacheConfig
from replay.engine import Run, drive
from replay.kernels.disk import HIT
from replay.planner import Planner
from replay.policies import PartPolicy, Policy, run_policy
from replay.result import Result
from replay.trace import Trace, window

PLAN, BOUND, OBJECT_BOUND = "lru+plan", "bound", "object-bound"
BOUNDS: Mapping[str, Callable[..., Result]] = MappingProxyType(
    {BOUND: byte_bound, OBJECT_BOUND: object_bound}
)

DailyHours = Callable[[Result, BoolArray], FloatArray]
"""From a result, and which of all accesses were hits: core-hours of the jobs, per day of `result.daily`."""
DailyMisses = Callable[[Result, BoolArray], Mapping[str, IntArray]]
"""From the same: bytes of misses per day of `result.daily`, by the group of the accesses."""


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """What competes at one capacity, by name.

    `policies` decide at each access; None: the policy or bound of that name that is built in. `planners`:
    each plans, every `cycle_s` from `plan_from_s` on, for an XCache configured as `xcache`, at this capacity;
    None: the XCache is plain LRU; `Replay`: it is over. If there are XCaches, the policies have as many
    bytes as the XCache that held most at its peak.
    """

    capacity_bytes: int
    policies: Mapping[str, Policy | PartPolicy | None]
    xcache: CacheConfig | None = None
    planners: Mapping[str, Planner | Replay | None] = MappingProxyType({})
    cycle_s: int = 4 * HOUR_S
    plan_from_s: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError if planners have no XCache to plan for."""
        if self.planners and self.xcache is None:
            raise ConfigError("policy", f"{', '.join(self.planners)}: plans need watermarks; give them")

    @property
    def names(self) -> list[str]:
        """All that competes."""
        return [*self.planners, *self.policies]


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One policy at one capacity; `result.daily` has its days.

    `capacity_bytes`: of the cache; `result.capacity_bytes`: what the policy ran with, see `Candidates`.
    `cpu_s`: of the replay. `core_hours`: of the jobs that read, float64 per day; None: not known. `missed`:
    bytes of misses by day, per part of the accesses; empty for a bound.
    """

    capacity_bytes: int
    policy: str
    result: Result
    cpu_s: float
    core_hours: FloatArray | None = None
    missed: Mapping[str, IntArray] = MappingProxyType({})


class Replay(NamedTuple):
    """A result, which of all accesses were hits (None for a bound), and the CPU seconds of the replay."""

    result: Result
    hit: BoolArray | None
    cpu_s: float


def replay_of(run: Run, policy: str) -> Replay:
    """What an XCache's replay, which is over, says of a policy."""
    return Replay(run.result(policy), (run.outcome & HIT) != 0, run.cpu_s)


class Gap(NamedTuple):
    """Per counted day: WAN bytes saved against LRU, and those that no policy can save more of."""

    saved_bytes: IntArray
    most_bytes: IntArray

    @classmethod
    def of(cls, wan_bytes: IntArray, *, lru: IntArray, bound: IntArray) -> Gap:
        """The gap of a policy that fetched `wan_bytes` per day."""
        return cls(lru - wan_bytes, lru - bound)

    @property
    def closed(self) -> float | None:
        """(WAN of LRU - WAN) / (WAN of LRU - WAN of the bound); None if LRU already reaches the bound."""
        most = int(self.most_bytes.sum())
        return int(self.saved_bytes.sum()) / most if most else None


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The rows at one capacity, by policy."""

    capacity_bytes: int
    rows: Mapping[str, Row]

    def gap(self, policy: str) -> Gap | None:
        """How near a policy comes to the bound on bytes; None if LRU or the bound was not replayed."""
        if not {LRU, BOUND} <= self.rows.keys():
            return None
        wan, lru, bound = (self.rows[name].result.daily.wan_bytes for name in (policy, LRU, BOUND))
        return Gap.of(wan, lru=lru, bound=bound)

    def hits_gap_closed(self, policy: str) -> float | None:
        """(hits - hits of LRU) / (hits of the bound on hits - hits of LRU).

        None if LRU already reaches the bound, for the bound on bytes, whose hits are no bound, and for what
        prefetched: the bound on hits does not hold then.
        """
        if not {LRU, OBJECT_BOUND} <= self.rows.keys() or policy == BOUND:
            return None
        mine, lru, bound = (self.rows[name].result for name in (policy, LRU, OBJECT_BOUND))
        most = bound.hits - lru.hits
        return (mine.hits - lru.hits) / most if most and not mine.prefetch_bytes else None


def compare(
    trace: Trace,
    candidates: Sequence[Candidates],
    *,
    count_from_s: int | None = None,
    hours: DailyHours | None = None,
    misses: DailyMisses | None = None,
    on_done: Advance = unwatched,
) -> list[Comparison]:
    """A comparison per entry of `candidates`, rows by its names, by replays in a thread per core.

    Accesses before `count_from_s` only warm the caches; None: all count. `on_done` is called as each replay
    ends. Raises ConfigError for an unknown policy, InputError if nothing counts, and what the policies and
    planners raise.
    """
    if any(name in BOUNDS for at in candidates for name in at.policies):
        _ = trace.following  # computed once, before several threads ask for it
    if any(at.planners for at in candidates):
        _ = trace.closes
    rows: dict[tuple[int, str], Row] = {}
    peaks: dict[int, int] = {}
    n_done, total = itertools.count(1), sum(len(at.names) for at in candidates)

    def row_of(at: Candidates, name: str, replay: Replay) -> Row:
        result, hit, cpu_s = replay
        core_hours = None if hours is None or hit is None else hours(result, hit)
        missed = {} if misses is None or hit is None else misses(result, hit)
        return Row(at.capacity_bytes, name, result, cpu_s, core_hours, missed)

    def in_xcache(at: Candidates, name: str) -> Row:
        return row_of(at, name, _simulated(trace, at, name, count_from_s))

    def at_each_access(at: Candidates, name: str) -> Row:
        room = peaks.get(at.capacity_bytes, at.capacity_bytes)
        return row_of(at, name, _decided(trace, room, name, at.policies[name], count_from_s))

    def collect(tasks: Iterable[Future[Row]]) -> None:
        for task in as_completed(list(tasks)):
            row = task.result()
            rows[row.capacity_bytes, row.policy] = row
            on_done(next(n_done), total, row.policy)

    largest_first = sorted(candidates, key=lambda at: -at.capacity_bytes)  # they take longest
    with _threads() as pool:
        collect(pool.submit(in_xcache, at, name) for at in largest_first for name in at.planners)
        for row in rows.values():
            peak = row.result.peak_usage_bytes
            peaks[row.capacity_bytes] = max(peak, peaks.get(row.capacity_bytes, peak))
        collect(pool.submit(at_each_access, at, name) for at in largest_first for name in at.policies)
    return [
        Comparison(at.capacity_bytes, {name: rows[at.capacity_bytes, name] for name in at.names})
        for at in candidates
    ]


def _simulated(trace: Trace, at: Candidates, name: str, count_from_s: int | None) -> Replay:
    assert at.xcache is not None
    planner = at.planners[name]
    if isinstance(planner, Replay):
        return planner
    config = dataclasses.replace(at.xcache, capacity_bytes=at.capacity_bytes)
    counted = window(trace, count_from_s)
    run = Run(trace, config, counted, planner, cycle_s=at.cycle_s, plan_from_s=at.plan_from_s)
    drive([run], int(trace.time_s[-1]) + 1)
    return replay_of(run, name)


def _decided(
    trace: Trace, room: int, name: str, policy: Policy | PartPolicy | None, count_from_s: int | None
) -> Replay:
    began_s, hit = time.thread_time(), None
    if bound := BOUNDS.get(name):
        result = bound(trace, room, count_from_s=count_from_s)
    else:
        # Of parts, a bool per access does not say what was served.
        hit = None if isinstance(policy, PartPolicy) else np.zeros(trace.n_accesses, np.bool_)
        result = run_policy(name, trace, room, count_from_s=count_from_s, policy=policy, hit=hit)
    return Replay(result, hit, time.thread_time() - began_s)


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """The threads of a comparison; the block's end waits for them.

    If it fails or is interrupted, what has not begun is dropped, and nothing waits for the rest.
    """
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
