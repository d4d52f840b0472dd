"""Why an item is in a plan, and why a file is in it or not, in words that an operator reads."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.common.units import duration_label, format_bytes
from prefetch.actions import ACTIONS, Action
from prefetch.plan.items import Cause, Plan
from prefetch.plan.planner import Judgement
from prefetch.plan.rules import Treatment
from prefetch.plan.scores import BARRED_WORDS, UNKNOWN, Barred, places
from prefetch.plan.value import ScoredFiles

_UNLIKELY = "hardly any"
_BY_RULE: dict[int, str] = {
    Cause.PIN_RULE: "a rule of the site pins it",
    Cause.NEVER_RULE: "a rule of the site keeps it out of the cache",
    Cause.TEST_FILE: "only monitoring reads it",
    Cause.ELSEWHERE: "another server of the federation is where it belongs",
    Cause.UNPLANNED: "it is left to the cache's own judgement: of the control group, or excluded by a rule",
}
_JUDGED: dict[int, str] = {
    Cause.UNKNOWN: ", as nobody read it for longer than candidates are kept",
    Cause.SIBLINGS: ", judged by the files like it: it came after the predictions",
}
_ENDS = {
    Action.EVICT: "makes room for arrivals",
    Action.UNPIN: "no longer among the best on disk",
    Action.PIN: "among the best on disk",
}


def reasons(plan: Plan, *, horizon_s: int) -> pa.StringArray:
    """A sentence for each item of `plan`, in its order; `horizon_s`: the horizon of its probabilities."""
    chance = pc.binary_join_element_wise(
        _chances(plan), pa.scalar(f" chance of a read within {duration_label(horizon_s)}"), ""
    )
    judged = _coded(plan.cause, _JUDGED)
    known = pc.binary_join_element_wise(chance, judged, "")
    known = pc.if_else(pa.array(plan.cause == int(Cause.QUEUED)), _queued(plan), known)
    sentence = pc.binary_join_element_wise(known, pa.scalar("; "), _ends(plan), "")
    by_rule = _coded(plan.cause, _BY_RULE)
    return pc.if_else(pc.equal(by_rule, ""), sentence, by_rule)


def _ends(plan: Plan) -> pa.StringArray:
    """Of a file on disk its rank and purpose, of any other its history."""
    worth = {Action.EVICT.code: " least worth its room: ", Action.PIN.code: " most worth its room: "}
    place = pc.binary_join_element_wise(
        pa.scalar("no. "), pa.array(plan.rank).cast(pa.string()), _coded(plan.action, worth), ""
    )
    ranked = pa.array(np.isin(plan.action, list(worth)))
    ends = _coded(plan.action, {action.code: words for action, words in _ENDS.items()})
    on_disk = pc.binary_join_element_wise(pc.if_else(ranked, place, ""), ends, "")
    unread = pc.if_else(
        pa.array(plan.cause == int(Cause.QUEUED)), "not on disk yet", "unread file of a dataset in use"
    )
    history = pc.if_else(pa.array(plan.was_read), "read before, but not on disk", unread)
    return pc.if_else(pa.array(plan.action == Action.PREFETCH.code), history, on_disk)


def _queued(plan: Plan) -> pa.StringArray:
    jobs = pc.if_else(pa.array(plan.n_jobs == 1), " job", " jobs")
    return pc.binary_join_element_wise(
        pa.scalar("queued: "), pa.array(plan.n_jobs).cast(pa.string()), jobs, ""
    )


def _chances(plan: Plan) -> pa.StringArray:
    percents = pa.array([_UNLIKELY, *(f"{min(percent, 99)} %" for percent in range(1, 101))])
    return percents.take(pa.array(np.clip(np.rint(plan.probability * 100), 0, 100).astype(np.int64)))


def _coded(codes: IntArray, words: dict[int, str]) -> pa.StringArray:
    table = [words.get(code, "") for code in range(max(len(Cause), len(Action)))]
    return pa.array(table, pa.string()).take(pa.array(codes))


@dataclasses.dataclass(frozen=True)
class Explanation:
    """One file in a plan: what is known of it, and what is done with it.

    `action`: None if nothing is done; `because`: why. `rank`: by value per byte (1 is best) among `of` files,
    either those on disk or the candidates. `predictions`: chance of a read by horizon. `limits`: the bound of
    each list, in words. `origin`: where its bytes are to come from, and why.
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
    origin: str | None = None


def explain(judged: Judgement, item: int) -> Explanation:
    """Why file `item` (a dense id) is in the plan of `judged` or not."""
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
    lists = {Action.PIN: judged.pinned, Action.PREFETCH: judged.fetched, Action.EVICT: judged.evicted}
    bounds: dict[str, str] = {
        name.value: f"{format_bytes(planned.limit.n_bytes)}: {planned.limit.what}"
        for name, planned in lists.items()
    }
    return bounds | {"prefetch from": f"{judged.case.limits.min_prefetch_probability:.0%} chance"}


def _left_out(judged: Judgement, valued: ScoredFiles, at: IntArray, item: int) -> str:
    """Why nothing is asked for: the first thing that stands in the way."""
    case = judged.case
    files, limits = case.files, case.limits
    if files.is_control[item]:
        return "it is of the control group, which is never planned"
    if files.treatment[item] == Treatment.EXCLUDED:
        return "a rule excludes it, or no rule includes it"
    if files.treatment[item] == Treatment.NEVER:
        return "a rule keeps it out of the cache, and it is not there (or a job reads it now)"
    if files.treatment[item] == Treatment.TEST:
        return "only monitoring reads it: it is never planned, and goes first when room is needed"
    if not files.is_here[item]:
        return "another server of the federation is where it belongs"
    if not at.size:
        return "nothing predicts a read of it: it was not read for longer than candidates are kept"
    if valued is case.candidates and files.barred[item] != Barred.NOT:
        return BARRED_WORDS[Barred(int(files.barred[item]))]
    place = int(at[0])
    if valued.longest[place] < limits.read_once_below:
        return f"likely read once: {valued.longest[place]:.1%} chance of another read, below read_once_below"
    if valued is case.disk:
        return (
            "it stays on disk unpinned: others are worth more per byte within the pin limit, and worse ones "
            f"make what room is needed ({judged.pinned.bound_by})"
        )
    if valued.likely[place] < limits.min_prefetch_probability:
        stated = case.scores.within(judged.horizon)[places(case.scores, files.n)[item]]
        came_true = f", as fewer came true of those predicted {stated:.0%} before"
        lowered = came_true if stated >= limits.min_prefetch_probability else ""
        return f"{valued.likely[place]:.0%} chance is below min_prefetch_probability{lowered}"
    return f"others are worth more per byte, or what it would drive out is ({judged.fetched.bound_by})"
