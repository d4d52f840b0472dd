"""The lists of a plan: what is pinned, what is fetched, what must go, and what loses its pin.

Every function is pure: those that read a `Case` return places in `case.disk` or `case.candidates`.
"""

import dataclasses
from functools import cached_property
from typing import NamedTuple

import numpy as np

from features.common.arrays import AnyIntArray, BoolArray, IntArray
from prefetch.actions import Action
from prefetch.plan.items import Cause, Limit, Plan, PlanLimits
from prefetch.plan.ranking import best_first, head, steady, within_groups
from prefetch.plan.rules import Treatment
from prefetch.plan.scores import NEVER_S, Barred, Files, Scores
from prefetch.plan.value import ScoredFiles
from replay.planner import CacheState

FREED = "room under the high watermark for what a cycle brings"
NO_ROOM_NEEDED = Limit(0, "there is room enough")
BY_A_STEWARD = Limit(0, "the cache's steward makes the room")


class PlanList(NamedTuple):
    """One list: indices into `case.disk` or `case.candidates`, best first; evictions begin with the worst.

    `is_cut`: `limit` left some out.
    """

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
    limits: PlanLimits
    disk: ScoredFiles
    candidates: ScoredFiles

    @cached_property
    def treatment(self) -> AnyIntArray:
        return self.files.treatment[self.disk.item]

    @cached_property
    def held_by_rule(self) -> BoolArray:
        return self.files.held_by_rule[self.disk.item]

    @cached_property
    def worth_caching(self) -> IntArray:
        """Bytes of each dataset (by code) that are worth caching: a fraction of those of its candidates."""
        size = self.bytes_by_dataset(self.scores.item, self.scores.size_bytes)
        return (self.limits.cached_fraction * size).astype(np.int64)

    def bytes_by_dataset(self, item: IntArray, size_bytes: IntArray) -> IntArray:
        """Sums of `size_bytes` of files by dataset (code), int64[d]; files without a dataset do not count."""
        code = self.files.dataset[item]
        total = np.zeros(1 + int(self.files.dataset.max(initial=0)), np.int64)
        np.add.at(total, code[code >= 0], size_bytes[code >= 0])
        return total

    def usable(self, valued: ScoredFiles) -> BoolArray:
        """Which files this cache may hold, bool[n]: not what a rule excludes, nor what is read once."""
        usable: BoolArray = self.files.may_be_held[valued.item]
        if self.limits.read_once_below > 0:
            usable &= ~(valued.longest < self.limits.read_once_below)
        return usable

    def fetchable(self) -> BoolArray:
        """Which candidates may be fetched, bool[n]."""
        may: BoolArray = self.files.barred[self.candidates.item] == Barred.NOT
        return self.usable(self.candidates) & may


def pins(case: Case) -> PlanList:
    """The pins: files on disk, by rule first, then by value. An earlier pin stays while its rank is near."""
    disk, by_rule = case.disk, case.held_by_rule
    limit = case.limits.pin(case.state)
    pinnable = by_rule | (case.usable(disk) & (disk.density > 0))
    order = best_first(np.where(by_rule, np.inf, disk.density), disk.last_use_s, disk.item, pinnable)
    if case.limits.cached_fraction < 1:
        order = within_groups(order, disk.size_bytes, case.files.dataset[disk.item], case.worth_caching)
    placed, slack = by_rule | case.state.pinned, case.limits.hysteresis
    places = steady(order, disk.size_bytes, placed, limit.n_bytes, slack)
    return PlanList(places, limit, places.size < order.size)


def eviction_order(case: Case, pinned: IntArray) -> IntArray:
    """Indices into `case.disk` of what may be evicted, worst first; not `pinned`, open or control files."""
    disk = case.disk
    may_go = case.files.may_be_evicted[disk.item] & ~case.state.is_open
    may_go[pinned] = False
    first = case.files.eviction_key[disk.item]
    key = np.where(first < 0, first, disk.density)
    return best_first(-key, -disk.last_use_s, disk.item, may_go)


def evictions(case: Case, order: IntArray, prefetch_bytes: int) -> PlanList:
    """The evictions: files that make room, the worst first, and those that a rule keeps out.

    Files that make room sum to at most the bytes needed. They are left to the cache's own purge if they are
    the files used least recently, which it would choose too.
    """
    needed, size = case.limits.evict_bytes(case.state, prefetch_bytes), case.disk.size_bytes
    goes = np.arange(order.size) < head(order, size, needed).size
    if not case.limits.evicts or _is_purged(case.disk, order, goes):
        goes[:] = False
    goes |= case.files.treatment[case.disk.item[order]] == Treatment.NEVER
    places = order[goes]
    limit = Limit(needed, FREED) if needed else NO_ROOM_NEEDED
    if not case.limits.evicts:
        limit = BY_A_STEWARD
    return PlanList(places, limit, places.size < order.size)


def fetches(case: Case, order: IntArray) -> PlanList:
    """The prefetches: likely candidates, worth more than the files of `order` that they displace."""
    limits, candidates = case.limits, case.candidates
    limit = limits.prefetch(case.state)
    likely = case.fetchable() & (candidates.density > _displaced_density(case, order, limit))
    likely &= candidates.likely >= limits.min_prefetch_probability
    best = best_first(candidates.density, candidates.last_use_s, candidates.item, likely)
    queued_first = _queued_first(case, affordable(case, best), limit)
    places = head(queued_first, candidates.size_bytes, limit.n_bytes)
    return PlanList(places, limit, places.size < queued_first.size)


def unpins(case: Case, pinned: IntArray) -> IntArray:
    """Indices into `case.disk` of files that an earlier plan pinned and this one does not."""
    lost = case.state.pinned.copy()
    lost[pinned] = False
    return np.flatnonzero(lost)


def rows(case: Case, pinned: PlanList, evicted: PlanList, fetched: PlanList) -> list[Plan]:
    """The lists as plan items, in the order of `Action`."""
    disk, lost, why = case.disk, unpins(case, pinned.places), _why_it_goes(case)
    held = np.where(case.held_by_rule, int(Cause.PIN_RULE), disk.cause)
    return [
        disk.rows(Action.EVICT, evicted.places, why[evicted.places]),
        disk.rows(Action.UNPIN, lost, why[lost]),
        disk.rows(Action.PIN, pinned.places, held[pinned.places]),
        case.candidates.rows(Action.PREFETCH, fetched.places, case.candidates.cause[fetched.places]),
    ]


def affordable(case: Case, order: IntArray) -> IntArray:
    """`order` without files beyond what their origin may deliver, or what pays of their dataset."""
    files, limits, candidates = case.files, case.limits, case.candidates
    if limits.origin_bytes is not None:
        origin = files.origin[candidates.item]
        order = within_groups(order, candidates.size_bytes, origin, limits.origin_bytes)
    if limits.cached_fraction < 1:
        left = case.worth_caching - case.bytes_by_dataset(case.disk.item, case.disk.size_bytes)
        order = within_groups(order, candidates.size_bytes, files.dataset[candidates.item], left)
    return order


def _displaced_density(case: Case, order: IntArray, limit: Limit) -> float:
    """The density that a prefetched file must beat: of the best that it, and some more, could drive out."""
    needed = case.limits.evict_bytes(case.state, int((1 + case.limits.hysteresis) * limit.n_bytes))
    freed_before = np.cumsum(case.disk.size_bytes[order[:-1]])
    n_out = int(np.searchsorted(freed_before, needed)) + 1
    out = order[:n_out] if needed else order[:0]
    return max(0.0, float(case.disk.density[out[-1]])) if out.size else 0.0


def _is_purged(disk: ScoredFiles, order: IntArray, leaving: BoolArray) -> bool:
    """Whether the files `leaving` of `order` are those of them that were used least recently."""
    use, item, stays = disk.last_use_s[order], disk.item[order], ~leaving
    newest = use[leaving].max(initial=NEVER_S)
    tied = use == newest
    last = item[tied & leaving].max(initial=-1)
    first = item[tied & stays].min(initial=np.iinfo(item.dtype).max)
    return bool(last < first) and not (use[stays] < newest).any()


def _queued_first(case: Case, order: IntArray, limit: Limit) -> IntArray:
    """`order` with what queued jobs read first, up to its share of `limit`; the rest of that comes last."""
    is_queued = case.candidates.n_jobs[order] > 0
    queued = order[is_queued]
    first = head(queued, case.candidates.size_bytes, int(case.limits.queued_share * limit.n_bytes))
    return np.concatenate([first, order[~is_queued], queued[first.size :]])


def _why_it_goes(case: Case) -> IntArray:
    """Why each file on disk may lose its place or its pin, codes of `Cause`."""
    item, files = case.disk.item, case.files
    why = np.where(files.is_here[item], case.disk.cause, int(Cause.ELSEWHERE))
    why = np.where(case.treatment == Treatment.NEVER, int(Cause.NEVER_RULE), why)
    why = np.where(case.treatment == Treatment.TEST, int(Cause.TEST_FILE), why)
    is_unplanned = files.is_control[item] | (case.treatment == Treatment.EXCLUDED)
    return np.where(is_unplanned, int(Cause.UNPLANNED), why)
