"""The planner: never over its limits, reproducible, and best first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefetch.plan import Action, Limits, Plan, Scores, ValuePlanner
from prefetch.reasons import reasons
from replay.planner import CacheState

N_FILES = 60
LIMITS = Limits(
    cycle_s=3600, pin_share=0.6, evict_inflow=1.0, prefetch_share=0.1, min_prefetch_probability=0.5
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[CacheState, Scores, Limits, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = rng.integers(1, 100, N_FILES)
    on_disk = rng.choice(N_FILES, draw(st.integers(0, N_FILES)), replace=False)
    scored = rng.choice(N_FILES, draw(st.integers(0, N_FILES)), replace=False)
    held = int(sizes[on_disk].sum())
    state = CacheState(
        as_of_s=1_000_000,
        capacity_bytes=max(1, int(held * draw(st.floats(0.9, 3)))),
        low_watermark=0.9,
        high_watermark=0.95,
        item=on_disk,
        bytes_on_disk=sizes[on_disk],
        last_access_s=1_000_000 - rng.integers(0, 10_000, len(on_disk)),
        pinned=rng.random(len(on_disk)) < 0.3,
        is_open=rng.random(len(on_disk)) < 0.1,
        inflow_bytes=draw(st.integers(0, 2 * held + 1)),
        lru_age_s=None,
    )
    scores = Scores(
        item=scored,
        size_bytes=sizes[scored],
        probability=rng.random(len(scored)),
        was_read=rng.random(len(scored)) < 0.5,
    )
    limits = Limits(
        cycle_s=3600,
        pin_share=draw(st.floats(0, 1)),
        evict_inflow=draw(st.floats(0, 3)),
        prefetch_share=draw(st.floats(0, 1)),
        min_prefetch_probability=draw(st.floats(0, 1)),
    )
    return state, scores, limits, rng.random(N_FILES) < 0.1


def plan_of(state: CacheState, scores: Scores, limits: Limits, is_control: np.ndarray) -> Plan:
    return ValuePlanner(lambda _: scores, limits, is_control).plan(state)


@given(worlds())
def test_a_plan_is_never_over_its_limits(world: tuple[CacheState, Scores, Limits, np.ndarray]) -> None:
    state, scores, limits, is_control = world
    plan = plan_of(*world)
    size = dict(zip(state.item.tolist(), state.bytes_on_disk.tolist(), strict=True))
    size |= dict(zip(scores.item.tolist(), scores.size_bytes.tolist(), strict=True))
    low = 0.9 * state.capacity_bytes

    pinned = sum(size[i] for i in plan.of(Action.PIN).tolist())
    assert pinned <= limits.pin_share * low
    assert pinned <= max(0, low - max(0.2 * state.capacity_bytes, state.inflow_bytes))
    fetched = sum(size[i] for i in plan.of(Action.PREFETCH).tolist())
    assert fetched <= limits.prefetch_share * state.inflow_bytes
    assert pinned + fetched <= max(low, 0) or fetched == 0
    assert not is_control[plan.item[plan.action != Action.UNPIN]].any()


@given(worlds())
def test_every_item_is_named_once_and_where_it_can_act(
    world: tuple[CacheState, Scores, Limits, np.ndarray],
) -> None:
    state, _, limits, _ = world
    plan = plan_of(*world)
    on_disk = set(state.item.tolist())
    held = [plan.of(a) for a in (Action.PIN, Action.EVICT)]
    assert set(np.concatenate(held).tolist()) <= on_disk
    assert not set(plan.of(Action.PREFETCH).tolist()) & on_disk
    assert set(plan.of(Action.UNPIN).tolist()) <= set(state.item[state.pinned].tolist())
    assert len(np.unique(np.concatenate(held))) == sum(map(len, held))
    assert (plan.probability[plan.action == Action.PREFETCH] >= limits.min_prefetch_probability).all()


@given(worlds())
def test_the_order_of_the_input_does_not_matter(world: tuple[CacheState, Scores, Limits, np.ndarray]) -> None:
    state, scores, limits, is_control = world
    backwards = Scores(
        scores.item[::-1], scores.size_bytes[::-1], scores.probability[::-1], scores.was_read[::-1]
    )
    first, second = plan_of(*world), plan_of(state, backwards, limits, is_control)
    for action in Action:
        assert first.of(action).tolist() == second.of(action).tolist()


@given(worlds())
def test_evictions_are_the_worst_and_no_more_than_needed(
    world: tuple[CacheState, Scores, Limits, np.ndarray],
) -> None:
    state, scores, limits, is_control = world
    plan = plan_of(*world)
    evicted = plan.of(Action.EVICT).tolist()
    chance = dict(zip(scores.item.tolist(), scores.probability.tolist(), strict=True))
    size = dict(zip(state.item.tolist(), state.bytes_on_disk.tolist(), strict=True))
    worst_first = [chance.get(i, 0.0) for i in evicted]
    assert worst_first == sorted(worst_first)
    fetched = int(plan.cost_bytes.sum())
    surplus = (
        sum(size.values()) + limits.evict_inflow * state.inflow_bytes + fetched - 0.95 * state.capacity_bytes
    )
    if evicted:
        assert sum(size[i] for i in evicted[:-1]) < surplus
    unpinned = set(state.item.tolist()) - set(plan.of(Action.PIN).tolist()) - set(evicted)
    is_open = set(state.item[state.is_open].tolist())
    assert not is_open & set(evicted)
    if evicted and sum(size[i] for i in evicted) < surplus:  # everything that may go is gone
        assert all(is_control[i] or i not in chance or i in is_open for i in unpinned)


def test_the_likeliest_are_pinned_and_reasons_say_so() -> None:
    state = CacheState(
        as_of_s=0,
        capacity_bytes=100,
        low_watermark=0.9,
        high_watermark=0.95,
        item=np.array([0, 1, 2]),
        bytes_on_disk=np.array([30, 30, 30]),
        last_access_s=np.array([-10_000] * 3),
        pinned=np.array([False, True, False]),
        is_open=np.zeros(3, bool),
        inflow_bytes=20,
        lru_age_s=None,
    )
    scores = Scores(
        item=np.array([2, 0, 3]),
        size_bytes=np.array([30, 30, 1]),
        probability=np.array([0.9, 0.004, 0.8]),
        was_read=np.array([True, True, False]),
    )
    plan = plan_of(state, scores, LIMITS, np.zeros(4, bool))
    assert plan.of(Action.PIN).tolist() == [2]
    assert plan.of(Action.UNPIN).tolist() == [1]
    assert plan.of(Action.EVICT).tolist() == [1]
    assert plan.of(Action.PREFETCH).tolist() == [3]
    assert reasons(plan, horizon_s=86400) == [
        "hardly any chance of a read within 1d, 1st least likely on disk; makes room for arrivals",
        "hardly any chance of a read within 1d is no longer among the best on disk",
        "90 % chance of a read within 1d, 1st best on disk",
        "80 % chance of a read within 1d; unread file of a dataset in use",
    ]


@pytest.mark.parametrize("pinned", [0, 3])
def test_an_empty_forecast_plans_only_evictions(pinned: int) -> None:
    state = CacheState(
        as_of_s=100_000,
        capacity_bytes=100,
        low_watermark=0.9,
        high_watermark=0.95,
        item=np.arange(3),
        bytes_on_disk=np.array([30, 30, 30]),
        last_access_s=np.array([0, 0, 100_000]),
        pinned=np.arange(3) < pinned,
        is_open=np.zeros(3, bool),
        inflow_bytes=500,
        lru_age_s=None,
    )
    none = np.empty(0, np.int64)
    plan = plan_of(state, Scores(none, none, np.empty(0), np.empty(0, bool)), LIMITS, np.zeros(3, bool))
    assert plan.of(Action.EVICT).tolist() == [0, 1]  # the third was read too lately to be known
    assert len(plan.of(Action.UNPIN)) == pinned
