"""The three lists of a plan: what is pinned, what is fetched, and what must go."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import NamedTuple

import numpy as np

from prefetch.plan.choice import head, ranked, within_groups
from prefetch.plan.datasets import completed, fraction_bytes, held_bytes, whole
from prefetch.plan.items import Action, Cause, FloatArray, Limit, Plan
from prefetch.plan.limits import DEMOTE, Limits
from prefetch.plan.rules import Treatment
from prefetch.plan.scores import Files, Scores
from prefetch.plan.valued import Valued
from replay.planner import BoolArray, CacheState, IntArray

FREED = "room under the high watermark for what a cycle brings"
NO_ROOM_NEEDED = Limit(0, "there is room enough")


class Choice(NamedTuple):
    """Places chosen, best first (of evictions the worst); `is_cut`: `limit` left some out."""

    places: IntArray
    limit: Limit
    is_cut: bool

    @property
    def bound_by(self) -> str:
        """What kept the list from being longer."""
        return self.limit.what if self.is_cut else "nothing more is worth it"


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One cache at one boundary: what it holds (`disk`), and the candidates it does not."""

    state: CacheState
    scores: Scores
    files: Files
    limits: Limits
    disk: Valued
    candidates: Valued

    @cached_property
    def treatment(self) -> IntArray:
        """Codes of `Treatment` of the files on disk."""
        return self.files.treatment[self.disk.item]

    @cached_property
    def held_by_rule(self) -> BoolArray:
        """Files on disk that a rule pins."""
        item, files = self.disk.item, self.files
        by_rule: BoolArray = (self.treatment == Treatment.PIN) & ~files.is_control[item]
        return by_rule & files.is_here[item]

    def usable(self, valued: Valued) -> BoolArray:
        """Files that may be placed here at all."""
        files, item = self.files, valued.item
        may = (files.treatment[item] == Treatment.PLANNED) | (files.treatment[item] == Treatment.PIN)
        read_once = valued.longest < self.limits.read_once_below
        usable: BoolArray = may & ~files.is_control[item] & files.is_here[item] & ~read_once
        return usable


def pins(case: Case) -> Choice:
    """Of `case.disk`: by rule, then by value; what is pinned has the benefit of doubt."""
    disk, limits = case.disk, case.limits
    limit = limits.pin(case.state)
    wanted = case.held_by_rule | (case.usable(disk) & (disk.density > 0))
    key = disk.density * np.where(case.state.pinned, 1 + limits.hysteresis, 1.0)
    order = ranked(np.where(case.held_by_rule, np.inf, key), disk.item, wanted)
    if limits.cached_fraction < 1:
        worth = fraction_bytes(case.scores, case.files, limits.cached_fraction)
        order = within_groups(order, disk.size_bytes, case.files.dataset[disk.item], worth)
    chosen = head(order, disk.size_bytes, limit.n_bytes)
    return Choice(chosen, limit, chosen.size < order.size)


def droppable(case: Case, pinned: IntArray) -> IntArray:
    """Places in `case.disk` that may be evicted, worst first: what has no business here, then by value."""
    disk, files, treatment = case.disk, case.files, case.treatment
    may = (treatment == Treatment.PLANNED) | (treatment == Treatment.NEVER)
    may &= ~case.state.is_open & ~files.is_control[disk.item]
    may[pinned] = False
    key = disk.density * np.where(case.state.pinned, 1 + case.limits.hysteresis, 1.0)
    key = np.where(files.is_here[disk.item], key, -1.0)
    return ranked(-np.where(treatment == Treatment.NEVER, -2.0, key), disk.item, may)


def evictions(case: Case, may_go: IntArray, prefetch_bytes: int) -> Choice:
    """The head of `may_go` that makes the room needed, and what goes in any case.

    That is what must never be cached, and, for bursts, what is likely never read again.
    """
    disk, limits = case.disk, case.limits
    needed = limits.evict_bytes(case.state, prefetch_bytes)
    spare = limits.evict_bytes(case.state, prefetch_bytes, times=DEMOTE)
    freed = np.cumsum(disk.size_bytes[may_go])
    before = freed - disk.size_bytes[may_go]
    finished = disk.longest[may_go] < limits.read_once_below
    never = case.treatment[may_go] == Treatment.NEVER
    chosen = may_go[(before < needed) | (finished & (before < spare)) | never]
    return Choice(chosen, Limit(needed, FREED) if needed else NO_ROOM_NEEDED, chosen.size < may_go.size)


def fetches(case: Case, may_go: IntArray) -> Choice:
    """Of `case.candidates`: likely files worth more than what they displace, best first."""
    limits, candidates = case.limits, case.candidates
    limit = limits.prefetch(case.state)
    usable = case.usable(candidates) & (candidates.density > _displaced(case, may_go, limit))
    wanted = usable & (candidates.probability >= limits.min_prefetch_probability)
    key, lifted = candidates.density, np.zeros(wanted.size, np.bool_)
    if limits.dataset_bonus > 0:
        wanted, key = completed(candidates, case.files, usable, wanted, limits.dataset_bonus)
        lifted = key != candidates.density
    order = _queued_first(case, affordable(case, _by_unit(case, key, wanted, lifted)), limit)
    chosen = whole(order, candidates, case.files, lifted, limit.n_bytes)
    candidates.cause[lifted] = int(Cause.WHOLE_DATASET)
    return Choice(chosen, limit, chosen.size < order.size)


def _queued_first(case: Case, order: IntArray, limit: Limit) -> IntArray:
    """`order` with what queued jobs read first, up to its share of `limit`; the rest of that comes last."""
    is_queued = case.candidates.n_jobs[order] > 0
    queued = order[is_queued]
    first = head(queued, case.candidates.size_bytes, int(case.limits.queued_share * limit.n_bytes))
    return np.concatenate([first, order[~is_queued], queued[first.size :]])


def _displaced(case: Case, may_go: IntArray, limit: Limit) -> float:
    """The density that a prefetched file must beat: of the best that it could drive out, and some more."""
    out = evictions(case, may_go, limit.n_bytes).places
    if not out.size:
        return 0.0
    return max(0.0, float(case.disk.density[out[-1]])) * (1 + case.limits.hysteresis)


def _by_unit(case: Case, key: FloatArray, wanted: BoolArray, lifted: BoolArray) -> IntArray:
    """Candidates by `key`; datasets that go as one stay together, their likeliest files first."""
    candidates = case.candidates
    index = np.flatnonzero(wanted)
    unit = np.where(lifted, case.files.dataset[candidates.item], -1)[index]
    own = candidates.density[index]
    return index[np.lexsort((candidates.item[index], -own, unit, -key[index]))]


def affordable(case: Case, order: IntArray) -> IntArray:
    """`order` without what origins may not deliver now, and beyond the fraction of a dataset that pays."""
    files, limits, candidates = case.files, case.limits, case.candidates
    if limits.origin_bytes is not None:
        origin = files.origin[candidates.item]
        order = within_groups(order, candidates.size_bytes, origin, limits.origin_bytes)
    if limits.cached_fraction < 1:
        worth = fraction_bytes(case.scores, files, limits.cached_fraction)
        left = worth - held_bytes(case.disk, files, worth.size)
        order = within_groups(order, candidates.size_bytes, files.dataset[candidates.item], left)
    return order


def unpins(case: Case, pinned: IntArray) -> IntArray:
    """Places in `case.disk` that an earlier plan holds and this one does not."""
    lost = case.state.pinned.copy()
    lost[pinned] = False
    return np.flatnonzero(lost)


def causes(case: Case, chosen: IntArray, action: Action) -> IntArray:
    """Why files on disk are on a list, codes of `Cause`."""
    disk, files, treatment = case.disk, case.files, case.treatment
    if action is Action.PIN:
        return np.where(case.held_by_rule, int(Cause.PIN_RULE), disk.cause)[chosen]
    why = np.where(files.is_here[disk.item], disk.cause, int(Cause.ELSEWHERE))
    why = np.where(treatment == Treatment.NEVER, int(Cause.NEVER_RULE), why)
    left_alone = files.is_control[disk.item] | (treatment == Treatment.EXCLUDED)
    return np.where(left_alone, int(Cause.UNPLANNED), why)[chosen]


def rows(case: Case, pinned: Choice, evicted: Choice, fetched: Choice) -> list[Plan]:
    """The lists as plan items, in the order of `Action`."""
    disk, lost = case.disk, unpins(case, pinned.places)
    return [
        disk.rows(Action.EVICT, evicted.places, causes(case, evicted.places, Action.EVICT)),
        disk.rows(Action.UNPIN, lost, causes(case, lost, Action.UNPIN)),
        disk.rows(Action.PIN, pinned.places, causes(case, pinned.places, Action.PIN)),
        case.candidates.rows(Action.PREFETCH, fetched.places),
    ]
