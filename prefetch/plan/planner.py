"""The planner: which files a cache should fetch, hold and drop at the next plan boundary.

One object for production and replay (`replay.planner.Planner`). The three lists work together. Pins hold the
best of what is on disk, up to a limit that leaves room for what arrives. Evictions make room for the coming
cycle, worst first, so that the cache's own purge, which knows only age, rarely has to choose: the quick
demotion that an unmodified XCache lacks. Prefetch pays its own bytes, and displaces only what is worth less.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from features.common.arrays import BoolArray, IntArray
from prefetch.actions import Action
from prefetch.plan import lists
from prefetch.plan.choice import best_first, head
from prefetch.plan.items import Limit, Plan, PlanLimits, joined, least
from prefetch.plan.lists import Case, Choice, affordable
from prefetch.plan.rules import Treatment
from prefetch.plan.scores import BARRED_WORDS, Files, Scores
from prefetch.plan.value import Objective, absent, eviction_age_s, on_disk, shown_horizon
from replay.planner import Actions, CacheState


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """A plan with what it was made from: the case, the index of the horizon that is shown, and the lists."""

    case: Case
    shown: int
    pinned: Choice
    evicted: Choice
    fetched: Choice

    @property
    def horizon_s(self) -> int:
        """The horizon of the probabilities shown, s."""
        return self.case.scores.horizons_s[self.shown]

    @functools.cached_property
    def plan(self) -> Plan:
        """The lists as items."""
        bound = {
            Action.EVICT: self.evicted.limit.what,
            Action.PIN: self.pinned.bound_by,
            Action.PREFETCH: self.fetched.bound_by,
        }
        return joined(lists.rows(self.case, self.pinned, self.evicted, self.fetched), bound)


@dataclasses.dataclass(frozen=True, eq=False)
class ValuePlanner:
    """Plans by expected value within `limits`.

    `scores_at(as_of_s)` gives the latest predictions at a boundary, `files` what else is known. `horizon_s`:
    the horizon that counts where the cache's eviction age is not known. `model_weight`: of the models in a
    file's value, for a cache of so many bytes; the rest is recency (`prefetch.plan.value`).
    """

    scores_at: Callable[[int], Scores]
    limits: PlanLimits
    files: Files
    horizon_s: int
    objective: Objective = Objective.BYTES
    model_weight: Callable[[int], float] = lambda _: 1.0

    @property
    def beside_a_steward(self) -> ValuePlanner:
        """The same planner for a cache whose steward makes the room: it evicts only what a rule keeps out."""
        return dataclasses.replace(self, limits=dataclasses.replace(self.limits, evicts=False))

    def actions(self, state: CacheState) -> Actions:
        """What to do with a cache in `state`: the actions of `plan`, from the candidates that may be fetched.

        All other candidates matter only for explanations, and for datasets that are fetched whole.
        """
        limits = self.limits
        least = 0.0 if limits.dataset_bonus > 0 else limits.min_prefetch_probability
        return self.judge(state, least=least).plan.actions

    def plan(self, state: CacheState) -> Plan:
        """The plan for a cache in `state`, with what the reasons need."""
        return self.judge(state).plan

    def judge(self, state: CacheState, *, least: float = 0.0) -> Judgement:
        """The plan with what it was made from; candidates less likely than `least` are left out."""
        scores, files = self.scores_at(state.as_of_s), self.files
        age_s = eviction_age_s(state, self.limits.cycle_s)
        shown = shown_horizon(scores.horizons_s, age_s=age_s, horizon_s=self.horizon_s)
        weight = self.model_weight(state.capacity_bytes)
        disk = on_disk(
            state,
            scores,
            files,
            self.objective,
            shown,
            recent_s=self.limits.cycle_s,
            model_weight=weight,
        )
        candidates = absent(state, scores, files, self.objective, shown, model_weight=weight, least=least)
        case = Case(state, scores, files, self.limits, disk, candidates)
        pinned = lists.pins(case)
        order = lists.eviction_order(case, pinned.places)
        fetched = lists.fetches(case, order)
        brought = int(candidates.size_bytes[fetched.places].sum())
        return Judgement(case, shown, pinned, lists.evictions(case, order, brought), fetched)


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
