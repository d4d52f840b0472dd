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

from prefetch.actions import Action
from prefetch.plan import lists
from prefetch.plan.items import Plan, joined
from prefetch.plan.limits import PlanLimits
from prefetch.plan.lists import Case, Choice
from prefetch.plan.scored_files import absent, on_disk
from prefetch.plan.scores import Files, Scores
from prefetch.plan.value import Objective, eviction_age_s, shown_horizon
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
