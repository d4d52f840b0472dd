"""The plan of a prefill: files that a job is known to read soon are fetched, or pinned if they are on disk.

It evicts nothing: the cache's own purge and the next plan make room, and both know these files.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from features.common.arrays import BoolArray, IntArray
from prefetch.actions import Action
from prefetch.plan.choice import best_first, head
from prefetch.plan.items import Limit, Plan, joined, least
from prefetch.plan.lists import Case, Choice, affordable
from prefetch.plan.rules import Treatment
from prefetch.plan.scores import BARRED_WORDS

ROOM = Limit(0, "what may be pinned, less what is")


@dataclasses.dataclass(frozen=True, eq=False)
class Prefill:
    """Pins of files on disk, prefetches of the others; `left_out`: number of files per reason."""

    plan: Plan
    left_out: dict[str, int]


def prefill(case: Case) -> Prefill:
    """Pins and prefetches of the scored files of `case`, within its pin, WAN and origin limits.

    Pins of other files count against the limit. Control group, rules and federation apply as in any plan.
    """
    asked_there = np.isin(case.disk.item, case.scores.item)
    others = case.state.pinned & ~asked_there
    pin = case.limits.pin(case.state).n_bytes - int(case.disk.size_bytes[others].sum())
    room = dataclasses.replace(ROOM, n_bytes=max(0, pin))
    pinned = _within(case, asked_there & case.usable(case.disk), room)
    left = dataclasses.replace(room, n_bytes=room.n_bytes - int(case.disk.size_bytes[pinned.places].sum()))
    fetched = _fetches(case, least(left, *case.limits.wan(case.state)))
    rows = [
        case.disk.rows(Action.PIN, pinned.places, pinned.cause),
        case.candidates.rows(Action.PREFETCH, fetched.places, fetched.cause),
    ]
    bound = {Action.PIN: pinned.bound_by, Action.PREFETCH: fetched.bound_by}
    return Prefill(joined(rows, bound), _left_out(case, pinned, fetched))


def _within(case: Case, wanted: BoolArray, limit: Limit) -> Choice:
    order = best_first(case.disk.density, case.disk.last_use_s, case.disk.item, wanted)
    chosen = head(order, case.disk.size_bytes, limit.n_bytes)
    return Choice(chosen, case.disk.cause[chosen], limit, chosen.size < order.size)


def _fetches(case: Case, limit: Limit) -> Choice:
    candidates = case.candidates
    usable = case.fetchable()
    order = best_first(candidates.density, candidates.last_use_s, candidates.item, usable)
    payable = affordable(case, order)
    chosen = head(payable, candidates.size_bytes, limit.n_bytes)
    if chosen.size == payable.size < order.size:
        limit = Limit(0, "what origins may deliver, or the fraction of a dataset that pays")
    return Choice(chosen, candidates.cause[chosen], limit, chosen.size < order.size)


def _left_out(case: Case, pinned: Choice, fetched: Choice) -> dict[str, int]:
    item, files = case.scores.item, case.files
    barred = ~np.isin(files.treatment[item], [int(Treatment.PLANNED), int(Treatment.PIN)])
    because = {
        "of the control group, which is never planned": files.is_control[item],
        "a rule excludes it or keeps it out of the cache": barred,
        "another server of the federation is where it belongs": ~files.is_here[item],
        **{words: files.barred[item] == code for code, words in BARRED_WORDS.items()},
        "beyond the limits": ~_chosen(case, item, pinned, fetched),
    }
    counts, counted = {}, np.zeros(item.size, np.bool_)
    for words, found in because.items():
        counts[words] = int((found & ~counted).sum())
        counted |= found
    return {words: n for words, n in counts.items() if n}


def _chosen(case: Case, item: IntArray, pinned: Choice, fetched: Choice) -> BoolArray:
    taken = np.concatenate([case.disk.item[pinned.places], case.candidates.item[fetched.places]])
    chosen: BoolArray = np.isin(item, taken)
    return chosen
