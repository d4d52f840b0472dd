"""Whether a challenger becomes champion: by the WAN bytes its plans save in replay, day by day."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from features.results import CHALLENGER_PLAN, CHAMPION_PLAN, LRU, S3FIFO_PLAN
from features.units import format_bytes
from models.evaluation.bootstrap import mean_interval

MIN_DAYS = 21
BLOCK_DAYS = 7
"""A week's days are drawn together: jobs have a weekly rhythm."""
CONFIDENCE = 0.95

Days = Mapping[str, int]
"""WAN bytes by day (`2026-03-01`)."""


@dataclasses.dataclass(frozen=True)
class Walk:
    """WAN bytes of every policy of one walk-forward replay at one capacity."""

    capacity_fraction: float
    wan_bytes: Mapping[str, Days]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The challenger against one rival at one capacity: the mean daily WAN saving and its bounds, in bytes.

    `saving_share`: of the rival's WAN. `won`: the lower bound is above 0.
    """

    against: str
    capacity_fraction: float
    n_days: int
    saving_bytes: float
    lower_bytes: float
    upper_bytes: float
    saving_share: float
    won: bool


@dataclasses.dataclass(frozen=True)
class Decision:
    """`reasons`: in words, one per fault or per comparison."""

    promote: bool
    reasons: tuple[str, ...]
    comparisons: tuple[Comparison, ...]


def decide(walks: Sequence[Walk], *, has_champion: bool, min_days: int = MIN_DAYS) -> Decision:
    """Promote if the challenger's plans beat every rival at every capacity replayed, else refuse.

    Rivals are plain LRU, S3-FIFO's counts put through the same planner, and the present champion where
    `has_champion`. To beat one, the lower 95 % bound of the mean daily WAN saving must be above 0, by a block
    bootstrap (weeks) over at least `min_days` days that both were replayed on. The same rows give the same
    decision.
    """
    rivals = [LRU, S3FIFO_PLAN, *([CHAMPION_PLAN] if has_champion else [])]
    faults = [fault for walk in walks for fault in _faults(walk, rivals, max(min_days, 1))]
    if not walks:
        faults = ["the evaluation has no rows"]
    if faults:
        return Decision(False, tuple(faults), ())
    compared = tuple(_compared(walk, rival) for walk in walks for rival in rivals)
    return Decision(all(one.won for one in compared), tuple(_told(one) for one in compared), compared)


def _faults(walk: Walk, rivals: Sequence[str], min_days: int) -> list[str]:
    at = f"at {walk.capacity_fraction:.0%} capacity"
    if missing := [policy for policy in (CHALLENGER_PLAN, *rivals) if not walk.wan_bytes.get(policy)]:
        return [f"{policy} was not replayed {at}" for policy in missing]
    days = set(walk.wan_bytes[CHALLENGER_PLAN])
    faults = [
        f"{rival} was replayed on other days than the challenger {at}"
        for rival in rivals
        if set(walk.wan_bytes[rival]) != days
    ]
    if len(days) < min_days:
        faults.append(f"{len(days)} test days {at} are too few; {min_days} are needed")
    return faults


def _compared(walk: Walk, rival: str) -> Comparison:
    mine, theirs = walk.wan_bytes[CHALLENGER_PLAN], walk.wan_bytes[rival]
    days = sorted(mine)
    saved = np.array([theirs[day] - mine[day] for day in days], dtype=np.float64)
    found = mean_interval(saved, block=BLOCK_DAYS, confidence=CONFIDENCE)
    total = sum(theirs.values())
    return Comparison(
        against=rival,
        capacity_fraction=walk.capacity_fraction,
        n_days=len(days),
        saving_bytes=found.mean,
        lower_bytes=found.lower,
        upper_bytes=found.upper,
        saving_share=float(saved.sum()) / total if total else 0.0,
        won=found.lower > 0,
    )


def _told(one: Comparison) -> str:
    verdict = "beats" if one.won else "does not surely beat"
    return (
        f"{verdict} {one.against} at {one.capacity_fraction:.0%} capacity: saves "
        f"{format_bytes(one.saving_bytes)} of WAN a day ({one.saving_share:.1%}), "
        f"at least {format_bytes(one.lower_bytes)} with {CONFIDENCE:.0%} confidence, over {one.n_days} days"
    )
