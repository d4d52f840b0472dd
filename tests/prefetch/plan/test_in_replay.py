"""The planner in replay: what it makes of perfect knowledge, and of none."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from cases import IS_THOROUGH
from plain_files import plain_files
from published import trace_of
from pushed_world import perfect
from scenarios import values_of

from prefetch.actions import Action
from prefetch.plan.items import PlanLimits
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.scores import NEVER_S, Scores
from replay.comparison import Candidates, compare
from replay.config import CacheConfig
from replay.engine import simulate
from replay.planner import Actions, CacheState
from replay.trace import Trace
from replay.workload import WorkloadConfig, generate

DAY_S = 86400
HORIZONS = (3600, 6 * 3600, 12 * 3600, DAY_S, 2 * DAY_S, 4 * DAY_S, 7 * DAY_S, 30 * DAY_S)
LIMITS = PlanLimits(3600, 0.0, 0.6, read_once_below=0.02, hysteresis=0.1)


def region(name: str, *, scale: float, days: int, seed: int) -> Trace:
    """A generated region's reads, with dense file ids."""
    values = values_of(name, scale=scale, days=days, seed=seed)
    whole = trace_of(generate(WorkloadConfig.from_mapping(values)))
    used, item = np.unique(whole.item, return_inverse=True)
    return Trace(whole.time_s, item.astype(np.int32), whole.size_bytes[used])


@pytest.fixture(scope="module")
def trace() -> Trace:
    return region("socal", scale=0.06, days=30, seed=11)


def gap_closed(trace: Trace, planner: ValuePlanner, *, count_from_s: int) -> float:
    """In a cache of a tenth of all bytes."""
    capacity = int(0.1 * trace.footprint_bytes)
    planners = {"lru": None, "lru+plan": planner}
    lineup = Candidates(capacity, {"bound": None}, CacheConfig(capacity), planners, LIMITS.cycle_s, 0)
    (at,) = compare(trace, [lineup], count_from_s=count_from_s)
    gap = at.gap("lru+plan")
    assert gap is not None and gap.closed is not None
    return gap.closed


def test_perfect_scores_close_most_of_the_gap_whatever_their_ladder(trace: Trace) -> None:
    count_from_s = int(trace.time_s[0]) + 10 * DAY_S
    planner = ValuePlanner(
        lambda at: perfect(trace, at, HORIZONS), LIMITS, plain_files(trace.n_items), 2 * DAY_S
    )
    closed = gap_closed(trace, planner, count_from_s=count_from_s)
    assert closed > 0.6
    half_a_day = dataclasses.replace(planner, scores_at=lambda at: perfect(trace, at, (12 * 3600,)))
    assert closed > gap_closed(trace, half_a_day, count_from_s=count_from_s)


@dataclasses.dataclass
class Watched:
    """A planner, and the states in which it was asked with the bytes that it left and brought."""

    planner: ValuePlanner
    seen: list[tuple[CacheState, int, int]]

    def actions(self, state: CacheState) -> Actions:
        judged = self.planner.judge(state)
        plan = judged.plan
        left = int(state.bytes_on_disk[~np.isin(state.item, plan.of(Action.EVICT))].sum())
        self.seen.append((state, left, int(plan.cost_bytes.sum())))
        return judged.actions


def test_plans_for_the_demos_small_cache_leave_it_as_full_as_what_arrives_allows() -> None:
    """With 4 h between plans, much of a 5 % cache turns over in a busy cycle, and little in a quiet one."""
    trace = region("demo", scale=0.3, days=12, seed=1)
    limits = dataclasses.replace(LIMITS, cycle_s=4 * 3600, prefetch_share=0.05)
    known = ValuePlanner(
        lambda at: perfect(trace, at, HORIZONS), limits, plain_files(trace.n_items), 2 * DAY_S
    )
    watched = Watched(known, [])
    cache = CacheConfig(int(0.05 * trace.footprint_bytes))
    simulate(trace, cache, planner=watched, cycle_s=limits.cycle_s, plan_from_s=0)
    low = int(cache.low_watermark * cache.capacity_bytes)
    used = [int(state.bytes_on_disk.sum()) for state, _, _ in watched.seen]
    warm = next(at for at, bytes_ in enumerate(used) if bytes_ >= low)
    n_below = 0
    for (state, left, brought), before in zip(watched.seen[warm:], used[warm:], strict=True):
        assert left + brought >= min(before, low - min(state.inflow_bytes, 0.2 * cache.capacity_bytes)) - 1
        n_below += left < low
    assert n_below > 5  # plans do make room below the low watermark where that much arrives


def constant(trace: Trace, as_of_s: int, *, every_s: int, chance: float) -> Scores:
    """The same chances for every file that was read in the last month, predicted every `every_s`."""
    at_s = as_of_s - as_of_s % every_s
    now = trace.first_at(at_s)
    last_s = np.full(trace.n_items, NEVER_S)
    np.maximum.at(last_s, trace.item[:now], trace.time_s[:now])
    item = np.flatnonzero(last_s > at_s - 30 * DAY_S)
    chances = np.full((len(HORIZONS), item.size), chance)
    return Scores(at_s, item, trace.size_bytes[item], HORIZONS, chances, last_s[item])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3] if IS_THOROUGH else [1])
@pytest.mark.parametrize(
    ("name", "scale"), [("pic", 0.08), ("mwt2", 0.006), ("socal", 0.04)][: 3 if IS_THOROUGH else 1]
)
def test_scores_that_know_nothing_lose_nothing_to_lru(name: str, scale: float, seed: int) -> None:
    """Whatever the weight of the models, and also where predictions are older than plans."""
    trace = region(name, scale=scale, days=20, seed=seed)
    files = plain_files(trace.n_items, dataset=np.arange(trace.n_items) // 50)
    count_from_s = int(trace.time_s[0]) + 7 * DAY_S
    for weight, every_s, chance in ((1.0, 3600, 0.3), (0.5, 6 * 3600, 0.01)):
        scores_at = partial(constant, trace, every_s=every_s, chance=chance)
        weigh = partial(_always, weight)
        planner = ValuePlanner(scores_at, LIMITS, files, 2 * DAY_S, model_weight=weigh)
        closed = gap_closed(trace, planner, count_from_s=count_from_s)
        assert closed > -0.03, (weight, every_s, chance, closed)


def _always(weight: float, capacity_bytes: int) -> float:
    return weight
