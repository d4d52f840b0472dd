"""Weights of the models that are tried in step, and the replays that go on from there."""

import dataclasses
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from plain_files import plain_files

from features.common.progress import unwatched
from features.common.times import DAY_S, HOUR_S
from jobs.loop.evaluate import replays
from jobs.loop.evaluate.replay_setup import Cache, Days
from models.evaluation.promotion import UNPROVEN
from prefetch.plan.items import PlanLimits
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.scores import Scores
from replay.config import CacheConfig
from replay.engine import drive, simulate
from replay.result import Result
from replay.trace import Trace

START_S = 20_000 * DAY_S
HORIZONS = (HOUR_S, 6 * HOUR_S, DAY_S)


def reads() -> Trace:
    """Files that are read every few hours, each in its own rhythm, among many that are read once."""
    rng = np.random.default_rng(3)
    again = [(at, file) for file in range(20) for at in range(file * 60, 8 * DAY_S, (2 + file) * HOUR_S)]
    once = zip(np.sort(rng.integers(0, 8 * DAY_S, 800)).tolist(), range(20, 820), strict=True)
    time_s, item = np.array(sorted([*again, *once])).T
    return Trace(START_S + time_s, item.astype(np.int32), np.full(820, 10))


def planner(trace: Trace, *, knows: bool) -> ValuePlanner:
    """A planner whose scores are right about every file, or wrong about every file."""

    def scores(at_s: int) -> Scores:
        now = trace.first_at(at_s)
        last_s, next_s = np.zeros(trace.n_items, np.int64), np.full(trace.n_items, 2**60)
        np.maximum.at(last_s, trace.item[:now], trace.time_s[:now])
        np.minimum.at(next_s, trace.item[now:], trace.time_s[now:])
        item = np.flatnonzero(last_s)
        chance = np.array([(next_s[item] < at_s + h) == knows for h in HORIZONS], float)
        return Scores(at_s, item, trace.size_bytes[item], HORIZONS, chance, last_s[item])

    limits = PlanLimits(HOUR_S, 0.0, 0.6)
    return ValuePlanner(scores, limits, plain_files(trace.n_items), DAY_S)


CACHES = [
    Cache(capacity / 8200, CacheConfig(capacity), cycle_s, HOUR_S, None)
    for capacity, cycle_s in ((400, HOUR_S), (200, HOUR_S), (300, 2 * HOUR_S))
]


def tried(trace: Trace, planners: list[ValuePlanner], days: Days) -> list[replays.Planned]:
    setup: Any = SimpleNamespace(trace=trace, caches=CACHES)
    return replays._tried(setup, planners, days, unwatched)


def counts(result: Result) -> bytes:
    return pickle.dumps(dataclasses.replace(result, seconds=0.0))


@pytest.mark.parametrize(("knows", "weight"), [(True, 1.0), (False, 0.0)])
def test_models_that_know_are_followed_from_the_days_of_trial_on_and_others_are_not(
    knows: bool, weight: float
) -> None:
    trace, days = reads(), Days(START_S + 4 * DAY_S, START_S + 6 * DAY_S)
    planners = [planner(trace, knows=knows) for _ in CACHES]
    goes_on = tried(trace, planners, days)
    drive([planned.run for planned in goes_on], int(trace.time_s[-1]) + 1)
    for cache, (judged, run) in zip(CACHES, goes_on, strict=True):
        assert judged.model_weight(1) == weight
        alone = simulate(
            trace,
            cache.config,
            planner=judged,
            cycle_s=cache.cycle_s,
            plan_from_s=days.trial_s,
            count_from_s=days.from_s,
        )
        assert counts(run.result(alone.policy)) == counts(alone)


def test_nothing_is_tried_on_days_without_a_read() -> None:
    trace = reads()
    silent = trace.time_s < START_S + 4 * DAY_S
    late = np.where(silent, trace.time_s, trace.time_s + 3 * DAY_S)
    trace = Trace(late, trace.item, trace.size_bytes)
    of = tried(trace, [planner(trace, knows=True)] * 3, Days(START_S + 5 * DAY_S, START_S + 7 * DAY_S))
    assert {planned.planner.model_weight(1) for planned in of} == {UNPROVEN}
    assert {planned.run.boundary_s for planned in of} == {START_S + 5 * DAY_S}
