"""The promotion rules: plans, or an order of eviction, serve if they save WAN bytes in replay, day by day."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from features.results import (
    CHALLENGER_PLAN,
    CHAMPION_PLAN,
    LRU,
    S3FIFO,
    S3FIFO_PLAN,
    STEWARD,
)
from features.units import TOO_FEW_DAYS, format_bytes
from models.evaluation.bootstrap import mean_interval

MIN_DAYS = 21
CONFIDENCE = 0.95

Days = Mapping[str, int]
"""WAN bytes by day (`2026-03-01`)."""


@dataclasses.dataclass(frozen=True)
class DailyWan:
    """WAN bytes per policy and day of a walk-forward replay at one capacity."""

    capacity_fraction: float
    wan_bytes: Mapping[str, Days]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The challenger against one rival at one capacity: its mean saving of WAN bytes per day, with bounds.

    `saving_share`: as a share of the rival's WAN bytes. `won`: the lower bound is above 0. `policy`: what of
    the challenger was compared, its plans or its order of eviction.
    """

    against: str
    capacity_fraction: float
    n_days: int
    saving_bytes: float
    lower_bytes: float | None
    upper_bytes: float | None
    saving_share: float
    won: bool
    policy: str = CHALLENGER_PLAN


@dataclasses.dataclass(frozen=True)
class Decision:
    """Whether to promote. `reasons`: one sentence per fault of the evaluation, or per comparison."""

    promote: bool
    reasons: tuple[str, ...]
    comparisons: tuple[Comparison, ...]


def decide(replays: Sequence[DailyWan], *, has_champion: bool, min_days: int = MIN_DAYS) -> Decision:
    """Promote if the challenger's plans beat every rival at every replayed capacity, else refuse.

    Rivals are plain LRU, plans by S3-FIFO's counts, and with `has_champion` plans by the present champion. A
    rival is beaten if the lower 95 % bound of the mean WAN saving per day is above 0, by a bootstrap of weeks
    over at least `min_days` days on which both were replayed. The decision is deterministic.
    """
    rivals = [LRU, S3FIFO_PLAN, *([CHAMPION_PLAN] if has_champion else [])]
    return _decided(replays, CHALLENGER_PLAN, rivals, min_days)


def decide_order(replays: Sequence[DailyWan], *, min_days: int = MIN_DAYS) -> Decision:
    """Whether the learned order of eviction may serve: it beats LRU and in-line S3-FIFO at every capacity.

    Beaten, days and determinism as in `decide`.
    """
    return _decided(replays, STEWARD, [LRU, S3FIFO], min_days)


def _decided(replays: Sequence[DailyWan], mine: str, rivals: Sequence[str], min_days: int) -> Decision:
    faults = [fault for replay in replays for fault in _faults(replay, mine, rivals, max(min_days, 1))]
    if not replays:
        faults = ["the evaluation has no rows"]
    if faults:
        return Decision(False, tuple(faults), ())
    compared = tuple(_compared(replay, mine, rival) for replay in replays for rival in rivals)
    return Decision(all(one.won for one in compared), tuple(_in_words(one) for one in compared), compared)


def _faults(replay: DailyWan, mine: str, rivals: Sequence[str], min_days: int) -> list[str]:
    at = f"at {replay.capacity_fraction:.0%} capacity"
    if missing := [policy for policy in (mine, *rivals) if not replay.wan_bytes.get(policy)]:
        return [f"{policy} was not replayed {at}" for policy in missing]
    days, who = set(replay.wan_bytes[mine]), "the challenger" if mine == CHALLENGER_PLAN else mine
    faults = [
        f"{rival} and {who} were replayed on different days {at}"
        for rival in rivals
        if set(replay.wan_bytes[rival]) != days
    ]
    if len(days) < min_days:
        faults.append(f"{len(days)} test days {at} are too few; {min_days} are needed")
    return faults


def _compared(replay: DailyWan, policy: str, rival: str) -> Comparison:
    mine, theirs = replay.wan_bytes[policy], replay.wan_bytes[rival]
    days = sorted(mine)
    saved = np.array([theirs[day] - mine[day] for day in days], dtype=np.float64)
    found = mean_interval(saved, confidence=CONFIDENCE)
    total = sum(theirs.values())
    return Comparison(
        against=rival,
        capacity_fraction=replay.capacity_fraction,
        n_days=len(days),
        saving_bytes=found.mean,
        lower_bytes=found.lower,
        upper_bytes=found.upper,
        saving_share=float(saved.sum()) / total if total else 0.0,
        won=found.lower is not None and found.lower > 0,
        policy=policy,
    )


def _in_words(one: Comparison) -> str:
    verdict = "beats" if one.won else "is not significantly better than"
    surely = TOO_FEW_DAYS
    if one.lower_bytes is not None:
        surely = f"at least {format_bytes(one.lower_bytes)} with {CONFIDENCE:.0%} confidence"
    return (
        f"{verdict} {one.against} at {one.capacity_fraction:.0%} capacity: saves "
        f"{format_bytes(one.saving_bytes)} of WAN bytes per day ({one.saving_share:.1%}), {surely}, "
        f"over {one.n_days} days"
    )
