"""Why a plan item is there, in words an operator reads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.units import duration_label
from prefetch.actions import Action
from prefetch.plan.items import Cause, Plan

_UNLIKELY = "hardly any"
_BY_RULE = {
    Cause.PIN_RULE: "a rule of the site pins it",
    Cause.NEVER_RULE: "a rule of the site keeps it out of the cache",
    Cause.ELSEWHERE: "another server of the federation is where it belongs",
    Cause.UNPLANNED: "it is left to the cache's own judgement: of the control group, or excluded by a rule",
}
_JUDGED = {
    Cause.UNKNOWN: ", as nobody read it for longer than candidates are kept",
    Cause.SIBLINGS: ", judged by the files like it: it came after the predictions",
    Cause.WHOLE_DATASET: ", and it makes its dataset whole",
}
_ENDS = {
    Action.EVICT: "makes room for arrivals",
    Action.UNPIN: "no longer among the best on disk",
    Action.PIN: "among the best on disk",
}


def reasons(plan: Plan, *, horizon_s: int) -> pa.StringArray:
    """One sentence per item of `plan`, in its order; `horizon_s`: that of its probabilities."""
    chance = pc.binary_join_element_wise(
        _chances(plan), pa.scalar(f" chance of a read within {duration_label(horizon_s)}"), ""
    )
    judged = _coded(plan.cause, {int(cause): words for cause, words in _JUDGED.items()})
    known = pc.binary_join_element_wise(chance, judged, "")
    known = pc.if_else(pa.array(plan.cause == int(Cause.QUEUED)), _queued(plan), known)
    sentence = pc.binary_join_element_wise(known, pa.scalar("; "), _ends(plan), "")
    by_rule = _coded(plan.cause, {int(cause): words for cause, words in _BY_RULE.items()})
    return pc.if_else(pc.equal(by_rule, ""), sentence, by_rule)


def _ends(plan: Plan) -> pa.StringArray:
    """Rank and purpose of what is on disk; the history of what is not."""
    place = pc.binary_join_element_wise(
        pa.array(plan.rank).cast(pa.string()),
        _coded(
            plan.action,
            {Action.EVICT.code: " least worth its room: ", Action.PIN.code: " most worth its room: "},
        ),
        "",
    )
    ranked = np.isin(plan.action, [Action.EVICT.code, Action.PIN.code])
    ends = _coded(plan.action, {action.code: words for action, words in _ENDS.items()})
    on_disk = pc.binary_join_element_wise(
        pc.if_else(pa.array(ranked), pc.binary_join_element_wise(pa.scalar("no. "), place, ""), ""), ends, ""
    )
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


def _coded(codes: np.ndarray[tuple[int], np.dtype[np.int64]], words: dict[int, str]) -> pa.StringArray:
    """The words of each code; none for the others."""
    table = [words.get(code, "") for code in range(max(len(Cause), len(Action)))]
    return pa.array(table, pa.string()).take(pa.array(codes))
