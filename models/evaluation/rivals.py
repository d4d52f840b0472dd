"""The rivals of a walk-forward evaluation at one capacity, replayed on the same accesses, day by day."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np

from features.arrays import BoolArray, FloatArray, IntArray
from features.results import BESIDE_A_STEWARD, LRU, S3FIFO
from features.times import DAY_S, day_label
from models.evaluation.bootstrap import Interval, few_days, ratio_interval
from models.evaluation.hours import HoursPerByte, daily_hours
from prefetch.plan import ValuePlanner
from prefetch.plan.cycle import CYCLES_PER_AGE
from prefetch.plan.cycle import fitting_cycle_s as within_grid
from replay.bounds import byte_bound
from replay.config import CacheConfig
from replay.engine import simulate
from replay.kernels.disk import HIT
from replay.planner import Actions, CacheState, Planner
from replay.policies import run_policy
from replay.policies.policy import Policy
from replay.result import Result
from replay.trace import Trace

BOUND = "bound"
IN_LINE = (S3FIFO, "clairvoyant")
"""Policies that decide at each access, unlike plans; the steward is another."""

_NOTHING = np.zeros(0, np.int64)
_IDLE = Actions(_NOTHING, _NOTHING, _NOTHING, _NOTHING)


@dataclasses.dataclass(frozen=True, eq=False)
class Replayed:
    """One policy's replay. `requested_bytes`: sizes of the files read, summed per day of `result.daily`.

    `core_hours`: of the jobs that read them, per day; None: not known.
    """

    policy: str
    result: Result
    requested_bytes: IntArray
    core_hours: FloatArray | None = None

    @property
    def days(self) -> list[str]:
        """The counted days, in order."""
        return [day_label(day * DAY_S) for day in self.result.daily.day.tolist()]

    @cached_property
    def prefetch_bytes(self) -> IntArray:
        """Prefetched bytes per day: WAN bytes that were not misses."""
        daily = self.result.daily
        prefetched: IntArray = daily.wan_bytes - (self.requested_bytes - daily.hit_bytes)
        return prefetched

    @cached_property
    def wasted_bytes(self) -> IntArray:
        """Wasted bytes per day: the replay reports only their sum, split here in proportion to prefetches."""
        sums = np.cumsum(self.prefetch_bytes)
        total = max(1, int(sums[-1]))
        # Differences of rounded cumulative sums: integers that add up to the sum.
        upto = [self.result.wasted_bytes * int(part) // total for part in sums]
        return np.array(upto, np.int64) - np.array([0, *upto[:-1]], np.int64)


@dataclasses.dataclass(frozen=True)
class Rivals:
    """Every policy's replay at one capacity, by name; plans were made each `cycle_s`.

    `model_weight`: of the models in the plans, by policy.
    """

    capacity_fraction: float
    cycle_s: int
    replayed: Mapping[str, Replayed]
    model_weight: Mapping[str, float] = MappingProxyType({})

    @property
    def few_days(self) -> str | None:
        """Why there are no bounds, in words; None: there are."""
        return few_days(len(self.replayed[LRU].days))

    def gap_closed(self, policy: str) -> Interval | None:
        """(WAN of LRU - WAN) / (WAN of LRU - WAN of the bound), with bounds by a block bootstrap over days.

        None where LRU already reaches the bound.
        """
        wan = {name: one.result.daily.wan_bytes for name, one in self.replayed.items()}
        return ratio_interval(wan[LRU] - wan[policy], wan[LRU] - wan[BOUND])


def replay_rivals(
    trace: Trace,
    cache: CacheConfig,
    planners: Mapping[str, Planner],
    *,
    capacity_fraction: float,
    cycle_s: int,
    from_s: int,
    plan_from_s: int,
    stewards: Mapping[str, Policy],
    hours: HoursPerByte | None = None,
    on_done: Callable[[str], None],
) -> Rivals:
    """Replay LRU, LRU with each of `planners`, `stewards`, the policies `IN_LINE`, and the bound on bytes.

    `stewards`: policies that follow a learned order, by name; none if no order could be learned. `hours`: of
    each file, by which the jobs' core-hours are counted.

    All see the accesses before `from_s`, where counting begins; plans begin at `plan_from_s`. The stewards,
    the policies `IN_LINE` and the bound have as many bytes as any of the planned caches held at its peak.
    """
    results: dict[str, Result] = {}
    core_hours: dict[str, FloatArray] = {}
    counted = partial(simulate, trace, cache, count_from_s=from_s)

    def note(name: str, result: Result, hit: BoolArray) -> None:
        results[name] = result
        if hours is not None:
            core_hours[name] = daily_hours(trace, result, hit, hours)
        on_done(name)

    for name, planner in {LRU: None, **planners}.items():
        outcome = np.zeros(trace.n_accesses, np.uint8)
        plans = counted(
            planner=planner, cycle_s=cycle_s, plan_from_s=plan_from_s, policy=name, outcome=outcome
        )
        note(name, plans, (outcome & HIT) != 0)
    room = max(result.peak_usage_bytes for result in results.values())
    in_line: dict[str, Policy | None] = {**stewards, **dict.fromkeys(IN_LINE)}
    for name, policy in in_line.items():
        hit = np.zeros(trace.n_accesses, np.bool_)
        note(name, run_policy(name, trace, room, count_from_s=from_s, policy=policy, hit=hit), hit)
    results[BOUND] = byte_bound(trace, room, count_from_s=from_s)
    on_done(BOUND)
    weights = {
        name: planner.model_weight(cache.capacity_bytes)
        for name, planner in planners.items()
        if isinstance(planner, ValuePlanner)
    }
    weights |= {name: weights[of] for name, of in BESIDE_A_STEWARD.items() if of in weights}
    by_name = {name: replayed(trace, one, core_hours.get(name)) for name, one in results.items()}
    return Rivals(capacity_fraction, cycle_s, by_name, weights)


def replayed(trace: Trace, result: Result, core_hours: FloatArray | None = None) -> Replayed:
    """A result of `trace` with the bytes requested per day."""
    return Replayed(result.policy, result, _requested(trace, result), core_hours)


def warm_age_s(trace: Trace, cache: CacheConfig, *, until_s: int, every_s: int) -> int | None:
    """Median age at which LRU purges, in the later half of the time before `until_s`; None: it never did."""
    recorder = _AgeRecorder([])
    past = trace.first_at(until_s)
    if not past:
        return None
    before = Trace(trace.time_s[:past], trace.item[:past], trace.size_bytes)
    begin_s = (int(trace.time_s[0]) + until_s) // 2
    simulate(before, cache, planner=recorder, cycle_s=every_s, plan_from_s=begin_s)
    return int(np.median(recorder.ages_s)) if recorder.ages_s else None


def fitting_cycle_s(age_s: int | None, grid_s: int) -> int:
    """How often to plan for a cache of this LRU age, with predictions on a grid of `grid_s`.

    At most a tenth of the age: the longest multiple of `grid_s` that divides a day, or for shorter ages a
    part of `grid_s` as in production. A day if the age is None (nothing was ever purged).
    """
    most = DAY_S if age_s is None else min(DAY_S, age_s // CYCLES_PER_AGE)
    if most < grid_s or DAY_S % grid_s:
        return within_grid(age_s, grid_s)
    return max(n * grid_s for n in range(1, most // grid_s + 1) if DAY_S % (n * grid_s) == 0)


@dataclasses.dataclass
class _AgeRecorder:
    """A planner that plans nothing, and records the age at which LRU last purged."""

    ages_s: list[int]

    def actions(self, state: CacheState) -> Actions:
        """Record the LRU age; plan nothing."""
        if state.lru_age_s is not None:
            self.ages_s.append(state.lru_age_s)
        return _IDLE


def _requested(trace: Trace, result: Result) -> IntArray:
    """Sizes of the files read, summed per counted day."""
    days = result.daily.day
    edges = np.searchsorted(trace.time_s, np.append(days, days[-1] + 1) * DAY_S)
    edges[0] = trace.n_accesses - result.requests
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(trace.size_bytes[trace.item])])
    requested: IntArray = np.diff(sums[edges])
    return requested


def day_rows(
    rivals: Sequence[Rivals], *, model_version: str, scored_by: Mapping[str, str]
) -> list[dict[str, object]]:
    """Rows of the table evaluations, one per capacity, policy and day.

    `scored_by`: by policy, the version of the models that its plans follow.
    """
    return [
        {
            "model_version": model_version,
            "policy": one.policy,
            "scored_by": scored_by.get(one.policy),
            "capacity_fraction": at.capacity_fraction,
            "capacity_bytes": at.replayed[LRU].result.capacity_bytes,
            "model_weight": at.model_weight.get(one.policy),
            "on_day": day,
            "wan_bytes": wan,
            "hit_bytes": hit_bytes,
            "requests": hits + misses,
            "hits": hits,
            "prefetch_bytes": prefetched,
            "wasted_bytes": wasted,
            "core_hours": hours,
        }
        for at in rivals
        for one in at.replayed.values()
        for day, hours, wan, hit_bytes, hits, misses, prefetched, wasted in zip(
            one.days,
            [None] * len(one.days) if one.core_hours is None else one.core_hours.tolist(),
            *(column.tolist() for column in _daily(one)),
            strict=True,
        )
    ]


def _daily(one: Replayed) -> tuple[IntArray, ...]:
    daily = one.result.daily
    return daily.wan_bytes, daily.hit_bytes, daily.hits, daily.misses, one.prefetch_bytes, one.wasted_bytes
