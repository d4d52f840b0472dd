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
from typing import NamedTuple

import numpy as np

from prefetch.actions import Action
from prefetch.plan import lists
from prefetch.plan.hindsight import EarlierAt, proved
from prefetch.plan.items import Limit, Plan, PlanLimits, joined, least
from prefetch.plan.lists import Case, PlanList, affordable
from prefetch.plan.ranking import best_first, head
from prefetch.plan.rules import Objective, Treatment
from prefetch.plan.scores import BARRED_WORDS, Files, Scores
from prefetch.plan.value import absent, eviction_age_s, nearest_horizon, on_disk
from replay.planner import Actions, CacheState


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """A plan with what it was made from: the case, the index of the horizon that counts, and the lists."""

    case: Case
    horizon: int
    pinned: PlanList
    evicted: PlanList
    fetched: PlanList

    @property
    def horizon_s(self) -> int:
        return self.case.scores.horizons_s[self.horizon]

    @functools.cached_property
    def plan(self) -> Plan:
        bound = {Action.EVICT: self.evicted.limit.what, Action.PIN: self.pinned.bound_by}
        bound[Action.PREFETCH] = self.fetched.bound_by
        return joined(lists.rows(self.case, self.pinned, self.evicted, self.fetched), bound)

    @property
    def actions(self) -> Actions:
        """Those of `plan`, without its other columns."""
        disk, case = self.case.disk.item, self.case
        return Actions(
            prefetch=case.candidates.item[self.fetched.places],
            pin=disk[self.pinned.places],
            unpin=disk[lists.unpins(case, self.pinned.places)],
            evict=disk[self.evicted.places],
        )


@dataclasses.dataclass(frozen=True, eq=False)
class ValuePlanner:
    """Plans by expected value within `limits`.

    `scores_at(as_of_s)`: the latest predictions at a time, or StaleInputError. `files`: facts about files.
    `horizon_s`: the horizon that counts where the cache's eviction age is not known.
    `model_weight(capacity_bytes)`: the weight of the models in a file's value; the rest is recency
    (`prefetch.plan.value`). `earlier_at`: see `prefetch.plan.hindsight`; None: `scores_at`.
    """

    scores_at: Callable[[int], Scores]
    limits: PlanLimits
    files: Files
    horizon_s: int
    objective: Objective = Objective.BYTES
    model_weight: Callable[[int], float] = lambda _: 1.0
    earlier_at: EarlierAt | None = None

    @property
    def beside_a_steward(self) -> ValuePlanner:
        """The same planner for a cache whose steward makes the room: it evicts only what a rule keeps out."""
        return dataclasses.replace(self, limits=dataclasses.replace(self.limits, evicts=False))

    def actions(self, state: CacheState) -> Actions:
        """The actions of `plan`, from candidates likely enough to fetch: only explanations need others."""
        return self.judge(state, min_probability=self.limits.min_prefetch_probability).actions

    def plan(self, state: CacheState) -> Plan:
        return self.judge(state).plan

    def judge(self, state: CacheState, *, min_probability: float = 0.0) -> Judgement:
        """The plan with what it was made from; candidates below `min_probability` are left out."""
        scores, files = self.scores_at(state.as_of_s), self.files
        age_s = eviction_age_s(state, self.limits.cycle_s)
        horizon = nearest_horizon(scores.horizons_s, age_s=age_s, horizon_s=self.horizon_s)
        weight = self.model_weight(state.capacity_bytes)
        chances = proved(self.scores_at, scores, horizon, files.n, self.earlier_at)
        asked = (state, scores, files, self.objective, chances)
        disk = on_disk(*asked, recent_s=self.limits.cycle_s, model_weight=weight)
        candidates = absent(*asked, model_weight=weight, least=min_probability)
        case = Case(state, scores, files, self.limits, disk, candidates)
        pinned = lists.pins(case)
        order = lists.eviction_order(case, pinned.places)
        fetched = lists.fetches(case, order)
        fetched_bytes = int(candidates.size_bytes[fetched.places].sum())
        return Judgement(case, horizon, pinned, lists.evictions(case, order, fetched_bytes), fetched)


class Prefill(NamedTuple):
    """The plan of a prefill; `left_out`: number of asked files that are not in it, per reason."""

    plan: Plan
    left_out: dict[str, int]


def prefill(case: Case, fetched_bytes: int = 0) -> Prefill:
    """Pins and prefetches of the scored files of `case`: files that a job is known to read soon.

    Limits, control group, rules and federation apply as in any plan, and pins of other files count, and what
    prefills of the last cycle fetch, `fetched_bytes`. Nothing is evicted: the cache's own purge and the next
    plan make room, and both know these files.
    """
    disk = case.disk
    is_asked = np.isin(disk.item, case.scores.item)
    others = case.state.pinned & ~is_asked
    pin_bytes = case.limits.pin(case.state).n_bytes - int(disk.size_bytes[others].sum())
    room = Limit(max(0, pin_bytes), "what may be pinned, less what is")
    order = best_first(disk.density, disk.last_use_s, disk.item, is_asked & case.usable(disk))
    places = head(order, disk.size_bytes, room.n_bytes)
    pinned = PlanList(places, room, places.size < order.size)
    left = dataclasses.replace(room, n_bytes=room.n_bytes - int(disk.size_bytes[places].sum()))
    limit = least(left, *case.limits.wan(case.state))
    fetched = _fetches(case, dataclasses.replace(limit, n_bytes=max(0, limit.n_bytes - fetched_bytes)))
    rows = [
        disk.rows(Action.PIN, places, disk.cause[places]),
        case.candidates.rows(Action.PREFETCH, fetched.places, case.candidates.cause[fetched.places]),
    ]
    bound = {Action.PIN: pinned.bound_by, Action.PREFETCH: fetched.bound_by}
    return Prefill(joined(rows, bound), _left_out(case, pinned, fetched))


def _fetches(case: Case, limit: Limit) -> PlanList:
    candidates = case.candidates
    usable = case.fetchable()
    order = best_first(candidates.density, candidates.last_use_s, candidates.item, usable)
    payable = affordable(case, order)
    places = head(payable, candidates.size_bytes, limit.n_bytes)
    if places.size == payable.size < order.size:
        limit = Limit(0, "what origins may deliver, or the fraction of a dataset that pays")
    return PlanList(places, limit, places.size < order.size)


def _left_out(case: Case, pinned: PlanList, fetched: PlanList) -> dict[str, int]:
    item, files = case.scores.item, case.files
    planned = np.concatenate([case.disk.item[pinned.places], case.candidates.item[fetched.places]])
    barred = ~np.isin(files.treatment[item], [int(Treatment.PLANNED), int(Treatment.PIN)])
    reasons = {
        "of the control group, which is never planned": files.is_control[item],
        "a rule excludes it or keeps it out of the cache": barred,
        "another server of the federation is where it belongs": ~files.is_here[item],
        **{words: files.barred[item] == code for code, words in BARRED_WORDS.items()},
        "beyond the limits": ~np.isin(item, planned),
    }
    counts, counted = {}, np.zeros(item.size, np.bool_)
    for words, applies in reasons.items():
        counts[words] = int((applies & ~counted).sum())
        counted |= applies
    return {words: n for words, n in counts.items() if n}
