"""The weight of the models is the one with which plans bring the fewest bytes."""

from __future__ import annotations

import numpy as np
import pytest
from plain_files import plain_files

from models.evaluation.promotion import choose_weight
from prefetch.plan.items import PlanLimits
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.scores import Scores
from replay.config import CacheConfig
from replay.trace import Trace

DAY_S, HOUR_S = 86400, 3600
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


@pytest.mark.parametrize(("knows", "weight"), [(True, 1.0), (False, 0.0)])
def test_models_that_know_are_followed_and_models_that_mislead_are_not(knows: bool, weight: float) -> None:
    trace, from_s = reads(), START_S + 4 * DAY_S
    chosen = choose_weight(
        trace, CacheConfig(400), planner(trace, knows=knows), cycle_s=HOUR_S, from_s=from_s
    )
    assert chosen == weight
