"""Chances that are corrected by what came of earlier predictions."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_files import plain_files

from features.common.times import DAY_S, HOUR_S
from prefetch.actions import Action
from prefetch.plan.hindsight import AS_STATED, EDGES, LOOKS, hindsight
from prefetch.plan.items import PlanLimits
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.scores import NEVER_S, KnownWork, Scores, with_known
from replay.planner import CacheState

H, N = 6 * HOUR_S, 6000
NOW_S = 100 * DAY_S
LIMITS = PlanLimits(HOUR_S, prefetch_share=1.0, min_prefetch_probability=0.6)


def past(read_share: float, stated: Any = 0.8, *, seed: int = 0) -> dict[int, Scores]:
    """Predictions each `H`: of the `N` files, `read_share` are read in each `H`."""
    rng, last = np.random.default_rng(seed), np.full(N, NEVER_S)
    chance = np.broadcast_to(np.asarray(stated, np.float64), (1, N))
    made = {}
    for k in range(LOOKS, -1, -1):
        at_s = NOW_S - k * H
        made[at_s] = Scores(at_s, np.arange(N), np.full(N, 10), (H,), chance, last.copy())
        last[rng.random(N) < read_share] = at_s + 1
    return made


def corrected(made: dict[int, Scores], stated: float = 0.8) -> float:
    scores = dataclasses.replace(made[NOW_S], probability=np.full((1, N), stated))
    return float(hindsight(made.get, scores, 0, N).within(scores, 0)[0])


@pytest.mark.parametrize("read_share", [0.0, 0.05, 0.4, 0.79, 1.0])
def test_a_stated_chance_becomes_the_share_that_was_read(read_share: float) -> None:
    assert corrected(past(read_share)) == pytest.approx(read_share, abs=0.01)


def test_each_class_is_corrected_by_its_own_files() -> None:
    stated = np.where(np.arange(N) % 2, 0.7, 0.05)
    made = past(0.3, stated)
    assert corrected(made, 0.7) == corrected(made, 0.05) == pytest.approx(0.3, abs=0.02)


def test_few_files_change_little() -> None:
    made = {at_s: _first(of, 2) for at_s, of in past(0.0).items()}
    scores = made[NOW_S]
    expected = 0.8 * 3 / (3 + LOOKS * 2 * 0.8)
    assert hindsight(made.get, scores, 0, N).within(scores, 0)[0] == pytest.approx(expected)


def test_only_predictions_a_horizon_before_the_next_ones_count() -> None:
    made = past(0.0)
    scores = made[NOW_S]
    early = {at_s: dataclasses.replace(of, as_of_s=of.as_of_s - H // 2) for at_s, of in made.items()}
    other = {at_s: dataclasses.replace(of, horizons_s=(H + 1,)) for at_s, of in made.items()}
    for at in (lambda _: None, early.get, other.get):
        within = hindsight(at, scores, 0, N).within(scores, 0)
        assert (within == 0.8).all()


def test_what_a_queue_names_keeps_its_chance() -> None:
    made = past(0.1)
    work = KnownWork(np.array([3]), np.array([10]), np.array([1]), np.array([0]))
    scores = with_known(made[NOW_S], work)
    within = hindsight(made.get, scores, 0, N).within(scores, 0)
    assert within[3] > 0.9 and within[4] == pytest.approx(0.1, abs=0.02)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60))
def test_corrected_chances_rise_within_0_and_1(files: list[tuple[float, bool]]) -> None:
    chance, was_read = (np.array(column) for column in zip(*files, strict=True))
    n = chance.size
    scores = [
        Scores(at_s, np.arange(n), np.full(n, 10), (H,), chance[None, :], np.where(was_read, last, NEVER_S))
        for at_s, last in ((NOW_S - H, NEVER_S), (NOW_S, NOW_S - 1))
    ]
    proved = hindsight({NOW_S - H: scores[0]}.get, scores[1], 0, n)
    grid = np.interp(np.linspace(0, 1, 101), proved.stated, proved.true)
    assert (np.diff(grid) >= 0).all() and grid[0] >= 0 and grid[-1] <= 1
    assert proved.stated.size <= EDGES.size + 3


def test_a_plan_fetches_what_proved_likely_and_withholds_what_did_not() -> None:
    none = np.zeros(0, np.int64)
    state = CacheState(
        NOW_S, 10**6, 0.9, 0.95, none, none, none, none.astype(bool), none.astype(bool), 1000, 1000, None
    )
    for read_share, is_fetched in ((0.1, False), (0.7, True)):
        made = past(read_share)
        planner = ValuePlanner(made.__getitem__, LIMITS, plain_files(N), H, past_at=made.get)
        plan = planner.plan(state)
        assert bool(plan.of(Action.PREFETCH).size) == is_fetched
        assert plan.probability == pytest.approx(read_share, abs=0.02)
        as_stated = dataclasses.replace(planner, past_at=lambda _: None).plan(state)
        assert as_stated.of(Action.PREFETCH).size and (as_stated.probability == 0.8).all()
    assert AS_STATED.within(made[NOW_S], 0) is not None


def _first(scores: Scores, n: int) -> Scores:
    return Scores(
        scores.as_of_s,
        scores.item[:n],
        scores.size_bytes[:n],
        scores.horizons_s,
        scores.probability[:, :n],
        scores.last_read_s[:n],
    )
