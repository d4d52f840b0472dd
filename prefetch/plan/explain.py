"""Why one file was planned, or was not."""

from __future__ import annotations

import dataclasses

import numpy as np

from features.common.units import duration_label, format_bytes
from prefetch.actions import ACTIONS, Action
from prefetch.plan.planner import Judgement
from prefetch.plan.reasons import reasons
from prefetch.plan.rules import Treatment
from prefetch.plan.scored_files import ScoredFiles
from prefetch.plan.scores import UNKNOWN, places


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What is known of one file at a plan boundary, and what came of it.

    `action` None: nothing is asked for; `because` says why in words. `rank` is the file's place by value per
    byte (1 is best) among `of` files: those on disk, or the candidates that are not. `predictions`: chance of
    a read by horizon. `limits`: what bounds each list.
    """

    on_disk: bool
    action: str | None
    because: str
    rank: int | None
    of: int
    value: float
    density: float
    predictions: dict[str, float]
    limits: dict[str, str]


def explain(judged: Judgement, item: int) -> Explanation:
    """Why file `item` (its dense id) is in the plan of `judged`, or is not."""
    case, plan = judged.case, judged.plan
    disk_at, absent_at = (np.flatnonzero(v.item == item) for v in (case.disk, case.candidates))
    valued, at = (case.disk, disk_at) if disk_at.size else (case.candidates, absent_at)
    rows = np.flatnonzero(plan.item == item)
    horizon_s = judged.horizon_s
    known = at.size > 0
    return Explanation(
        on_disk=bool(disk_at.size),
        action=ACTIONS[plan.action[rows[0]]] if rows.size else None,
        because=reasons(plan, horizon_s=horizon_s)[int(rows[0])].as_py()
        if rows.size
        else _left_out(judged, valued, at, item),
        rank=1 + int((valued.density > valued.density[at[0]]).sum()) if known else None,
        of=valued.item.size,
        value=float(valued.value[at[0]]) if known else 0.0,
        density=float(valued.density[at[0]]) if known else 0.0,
        predictions=_predictions(judged, item),
        limits=_limits(judged),
    )


def _predictions(judged: Judgement, item: int) -> dict[str, float]:
    scores = judged.case.scores
    entry = int(places(scores, judged.case.files.n)[item])
    if entry == UNKNOWN:
        return {}
    chances = scores.probability[:, entry].tolist()
    return {duration_label(h): p for h, p in zip(scores.horizons_s, chances, strict=True)}


def _limits(judged: Judgement) -> dict[str, str]:
    lists = {
        Action.PIN: judged.pinned,
        Action.PREFETCH: judged.fetched,
        Action.EVICT: judged.evicted,
    }
    bounds: dict[str, str] = {
        name.value: f"{format_bytes(one.limit.n_bytes)}: {one.limit.what}" for name, one in lists.items()
    }
    return bounds | {"prefetch from": f"{judged.case.limits.min_prefetch_probability:.0%} chance"}


def _left_out(
    judged: Judgement, valued: ScoredFiles, at: np.ndarray[tuple[int], np.dtype[np.int64]], item: int
) -> str:
    """Why nothing is asked for: the first thing that stands in the way."""
    case = judged.case
    files, limits = case.files, case.limits
    if files.is_control[item]:
        return "it is of the control group, which is never planned"
    if files.treatment[item] == Treatment.EXCLUDED:
        return "a rule excludes it, or no rule includes it"
    if files.treatment[item] == Treatment.NEVER:
        return "a rule keeps it out of the cache, and it is not there (or a job reads it now)"
    if not files.is_here[item]:
        return "another server of the federation is where it belongs"
    if not at.size:
        return "nothing predicts a read of it: it was not read for longer than candidates are kept"
    place = int(at[0])
    if valued.longest[place] < limits.read_once_below:
        return f"likely read once: {valued.longest[place]:.1%} chance of another read, below read_once_below"
    if valued is case.disk:
        return (
            "it stays on disk unpinned: others are worth more per byte within the pin limit, and worse ones "
            f"make what room is needed ({judged.pinned.bound_by})"
        )
    if valued.probability[place] < limits.min_prefetch_probability:
        return f"{valued.probability[place]:.0%} chance is below min_prefetch_probability"
    return f"others are worth more per byte, or what it would drive out is ({judged.fetched.bound_by})"
