"""Why a plan item is there, in words an operator reads."""

from __future__ import annotations

import numpy as np

from features.units import duration_label
from prefetch.plan import Action, Plan

_WORDS = {
    Action.EVICT: "{chance} of a read within {horizon}, {rank} least likely on disk; makes room for arrivals",
    Action.UNPIN: "{chance} of a read within {horizon} is no longer among the best on disk",
    Action.PIN: "{chance} of a read within {horizon}, {rank} best on disk",
    Action.PREFETCH: "{chance} of a read within {horizon}; {history}",
}


def reasons(plan: Plan, *, horizon_s: int) -> list[str]:
    """One sentence per item of `plan`, in its order."""
    horizon = duration_label(horizon_s)
    chances = np.rint(plan.probability * 100).astype(int)
    return [
        _WORDS[Action(action)].format(
            chance=_chance(percent),
            horizon=horizon,
            rank=_ordinal(rank),
            history="read before, but not on disk" if was_read else "unread file of a dataset in use",
        )
        for action, percent, rank, was_read in zip(
            plan.action.tolist(), chances.tolist(), plan.rank.tolist(), plan.was_read.tolist(), strict=True
        )
    ]


def _chance(percent: int) -> str:
    if percent <= 0:
        return "hardly any chance"
    return f"{min(percent, 99)} % chance"


def _ordinal(rank: int) -> str:
    suffix = "th" if rank % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{suffix}"
