"""The promotion rules: plans, or an order of eviction, serve if they save WAN bytes in replay, day by day.

Savings are WAN bytes, and core-hours that jobs need for their reads, waiting included.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from features import results
from features.common.arrays import BoolArray, FloatArray
from features.common.times import DAY_S
from features.common.units import TOO_FEW_DAYS, format_bytes
from models.evaluation.metrics import CONFIDENCE, mean_interval
from prefetch.plan.planner import ValuePlanner
from replay.config import CacheConfig
from replay.engine import Run
from replay.result import Result
from replay.trace import Trace, window

MIN_DAYS = 21

Days = Mapping[str, int]
"""WAN bytes by day (`2026-03-01`)."""


@dataclasses.dataclass(frozen=True)
class DailyWan:
    """WAN bytes and core-hours per policy and day of a walk-forward replay at one capacity."""

    capacity_fraction: float
    wan_bytes: Mapping[str, Days]
    core_hours: Mapping[str, Mapping[str, float]] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class RivalComparison:
    """The challenger against one rival at one capacity: its mean saving of WAN bytes per day, with bounds.

    `saving_share`: as a share of the rival's WAN bytes. `won`: the lower bound is above 0. `policy`: what of
    the challenger was compared, its plans or its order of eviction. `saving_hours`, `lower_hours`: its mean
    saving of core-hours per day where that decides, see `decide_pair`.
    """

    against: str
    capacity_fraction: float
    n_days: int
    saving_bytes: float
    lower_bytes: float | None
    upper_bytes: float | None
    saving_share: float
    won: bool
    policy: str = results.CHALLENGER_PLAN
    saving_hours: float | None = None
    lower_hours: float | None = None


@dataclasses.dataclass(frozen=True)
class Decision:
    """Whether to promote. `reasons`: one sentence per fault of the evaluation, or per comparison."""

    promote: bool
    reasons: tuple[str, ...]
    comparisons: tuple[RivalComparison, ...]


def decide(replays: Sequence[DailyWan], *, has_champion: bool, min_days: int = MIN_DAYS) -> Decision:
    """Promote if the challenger's plans beat every rival at every replayed capacity, else refuse.

    Rivals are plain LRU, plans by S3-FIFO's counts, and with `has_champion` plans by the present champion. A
    rival is beaten if the lower 95 % bound of the mean WAN saving per day is above 0, by a bootstrap of weeks
    over at least `min_days` days on which both were replayed. The decision is deterministic.
    """
    rivals = [results.LRU, results.S3FIFO_PLAN, *([results.CHAMPION_PLAN] if has_champion else [])]
    return _decided(replays, results.CHALLENGER_PLAN, rivals, min_days)


def decide_order(
    replays: Sequence[DailyWan],
    *,
    is_successor: bool = False,
    served_at: Collection[float] = (),
    min_days: int = MIN_DAYS,
) -> Decision:
    """Whether the learned order of eviction may serve: it beats LRU and in-line S3-FIFO at every capacity.

    Beaten, days and determinism as in `decide`. The replay is of orders learned alike, one each week. So
    where one of them serves (`is_successor`), to refuse the newest is to follow an older one: it is refused
    only if it misses significantly more than a rival: the upper bound of the saving is below 0. A replay
    without a capacity at which the one that serves won (`served_at`) judges the newest as a first one.
    """
    decision = _decided(replays, results.STEWARD, [results.LRU, results.S3FIFO], min_days)
    if not is_successor or not decision.comparisons:
        return decision
    if missing := sorted(set(served_at) - {replay.capacity_fraction for replay in replays}):
        at = ", ".join(f"{share:.0%}" for share in missing) + " capacity"
        rule = f"the order that serves won at {at} too: without it a newer one has to beat its rivals"
        return dataclasses.replace(decision, reasons=(rule, *decision.reasons))
    most_saved = [comparison.upper_bytes for comparison in decision.comparisons]
    worse = any(most is None or not most >= 0 for most in most_saved)  # NaN too
    rule = "an order learned alike serves: a newer one replaces it unless a rival is significantly better"
    return dataclasses.replace(decision, promote=not worse, reasons=(rule, *decision.reasons))


def decide_pair(replays: Sequence[DailyWan], *, has_champion: bool, min_days: int = MIN_DAYS) -> Decision:
    """Whether the challenger's plans may act in a cache whose steward follows the challenger's order.

    Plans and steward together must beat plain LRU and plans by S3-FIFO's counts as in `decide`. Plans cannot
    save bytes that a steward saves without them: their prefetches save waiting. So against the steward alone,
    and with `has_champion` beside plans by the present champion, the lower 95 % bound of the mean saving of
    core-hours per day must be above 0, while the WAN bytes are not significantly more: the upper 95 % bound
    of their saving is not below 0.
    """
    alike = [results.STEWARD, *([results.STEWARD_CHAMPION] if has_champion else [])]
    return _decided(
        replays, results.STEWARD_PLAN, [results.LRU, results.S3FIFO_PLAN], min_days, by_hours=alike
    )


def _decided(
    replays: Sequence[DailyWan],
    mine: str,
    by_bytes: Sequence[str],
    min_days: int,
    by_hours: Sequence[str] = (),
) -> Decision:
    rivals = [*by_bytes, *by_hours]
    faults = [fault for replay in replays for fault in _faults(replay, mine, rivals, max(min_days, 1))]
    if not replays:
        faults = ["the evaluation has no rows"]
    elif not any(any(days.values()) for replay in replays for days in replay.wan_bytes.values()):
        faults = ["nothing was fetched on the replayed days"]
    if by_hours and not faults:
        faults = [fault for replay in replays for fault in _untold(replay, (mine, *by_hours))]
    if faults:
        return Decision(False, tuple(faults), ())
    compared = tuple(
        (_compared_by_hours if rival in by_hours else _compared)(replay, mine, rival)
        for replay in replays
        for rival in rivals
    )
    has_won = all(comparison.won for comparison in compared)
    return Decision(has_won, tuple(map(_in_words, compared)), compared)


def _faults(replay: DailyWan, mine: str, rivals: Sequence[str], min_days: int) -> list[str]:
    at = f"at {replay.capacity_fraction:.0%} capacity"
    if missing := [policy for policy in (mine, *rivals) if not replay.wan_bytes.get(policy)]:
        return [f"{policy} was not replayed {at}" for policy in missing]
    days, who = set(replay.wan_bytes[mine]), "the challenger" if mine == results.CHALLENGER_PLAN else mine
    faults = [
        f"{rival} and {who} were replayed on different days {at}"
        for rival in rivals
        if set(replay.wan_bytes[rival]) != days
    ]
    if len(days) < min_days:
        faults.append(f"{len(days)} test days {at} are too few; {min_days} are needed")
    return faults


def _compared(replay: DailyWan, policy: str, rival: str) -> RivalComparison:
    mine, theirs = replay.wan_bytes[policy], replay.wan_bytes[rival]
    days = sorted(mine)
    saved = np.array([theirs[day] - mine[day] for day in days], dtype=np.float64)
    interval = mean_interval(saved)
    total = sum(theirs.values())
    return RivalComparison(
        against=rival,
        capacity_fraction=replay.capacity_fraction,
        n_days=len(days),
        saving_bytes=interval.mean,
        lower_bytes=interval.lower,
        upper_bytes=interval.upper,
        saving_share=float(saved.sum()) / total if total else 0.0,
        won=interval.lower is not None and interval.lower > 0,
        policy=policy,
    )


def _untold(replay: DailyWan, policies: Sequence[str]) -> list[str]:
    days, core_hours = set(replay.wan_bytes[policies[0]]), replay.core_hours
    return [
        f"core-hours of {policy} at {replay.capacity_fraction:.0%} capacity are not known; evaluate again"
        for policy in policies
        if set(core_hours.get(policy, ())) != days
    ]


def _compared_by_hours(replay: DailyWan, policy: str, rival: str) -> RivalComparison:
    """By core-hours, while the WAN bytes are not significantly more."""
    bytes_saved = _compared(replay, policy, rival)
    mine, theirs = replay.core_hours[policy], replay.core_hours[rival]
    saved = np.array([theirs[day] - mine[day] for day in sorted(mine)], dtype=np.float64)
    interval, most = mean_interval(saved), bytes_saved.upper_bytes
    return dataclasses.replace(
        bytes_saved,
        won=interval.lower is not None and interval.lower > 0 and most is not None and most >= 0,
        saving_hours=interval.mean,
        lower_hours=interval.lower,
    )


def _in_words(comparison: RivalComparison) -> str:
    saved, interval = f"{format_bytes(comparison.saving_bytes)} of WAN bytes per day", TOO_FEW_DAYS
    sure, hours = f"with {CONFIDENCE:.0%} confidence", comparison.saving_hours
    if hours is None:
        verdict = "beats" if comparison.won else "is not significantly better than"
        if comparison.lower_bytes is not None:
            interval = f"at least {format_bytes(comparison.lower_bytes)} {sure}"
    else:
        verdict = "saves waiting beside" if comparison.won else "saves no waiting without WAN bytes beside"
        saved = f"{hours:.3g} core-hours per day and {saved}"
        if comparison.lower_hours is not None and comparison.upper_bytes is not None:
            most = format_bytes(comparison.upper_bytes)
            interval = f"at least {comparison.lower_hours:.3g} and at most {most} {sure} each"
    return (
        f"{verdict} {comparison.against} at {comparison.capacity_fraction:.0%} capacity: saves {saved} "
        f"({comparison.saving_share:.1%}), {interval}, over {comparison.n_days} days"
    )


class HoursPerByte(NamedTuple):
    """Core-hours per byte of each file, float64[m]: where it comes from its origin, and from the cache."""

    missed: FloatArray
    hit: FloatArray


def daily_hours(trace: Trace, result: Result, hit: BoolArray, per_byte: HoursPerByte) -> FloatArray:
    """Core-hours of the jobs on each day of `result.daily`; `hit`: bool[n], for all accesses of `trace`."""
    first = trace.n_accesses - result.requests
    item, days = trace.item[first:], result.daily.day
    rate = np.where(hit[first:], per_byte.hit[item], per_byte.missed[item])
    day = trace.time_s[first:] // DAY_S - days[0]
    hours: FloatArray = np.bincount(day, weights=rate * trace.size_bytes[item], minlength=days.size)
    return hours


WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Weights of the models in a file's value; 0 is LRU."""
UNPROVEN = 0.5
"""Of models that were never tried: saves about as much as 1 with good ones, and loses less with bad ones."""


def weighed(
    trace: Trace, cache: CacheConfig, planner: ValuePlanner, *, cycle_s: int, from_s: int, last_s: int
) -> dict[float, Run]:
    """Replays that try each weight in plans by `planner`, from `from_s` on, and have yet to reach `last_s`.

    The later half of that time counts: a cache full of LRU's choices takes a while to turn over.
    """
    counted = window(trace, (from_s + last_s) // 2)
    return {
        weight: Run(trace, cache, counted, weighted(planner, weight), cycle_s=cycle_s, plan_from_s=from_s)
        for weight in WEIGHTS
    }


def best_weight(runs: Mapping[float, Run]) -> float:
    """The weight whose replay brought the fewest bytes over the WAN; of equals the largest."""
    return min(runs, key=lambda weight: (runs[weight].counted_wan_bytes, -weight))


def weighted(planner: ValuePlanner, weight: float) -> ValuePlanner:
    """`planner` with one weight of the models at every capacity."""
    return dataclasses.replace(planner, model_weight=lambda _: weight)
