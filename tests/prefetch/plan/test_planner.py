"""The planner: never over its limits, reproducible, best first, and steady."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefetch.plan import (
    Action,
    Cause,
    Files,
    Limits,
    Objective,
    Plan,
    Scores,
    Treatment,
    ValuePlanner,
    plain_files,
)
from prefetch.plan.explain import explain
from prefetch.reasons import reasons
from replay.planner import CacheState

N_FILES = 60
DAY_S = 86400
AS_OF = 1_000_000
HORIZONS = (3600, DAY_S, 7 * DAY_S)
LIMITS = Limits(
    cycle_s=3600, pin_share=0.6, evict_inflow=1.0, prefetch_share=0.1, min_prefetch_probability=0.5
)


class World(NamedTuple):
    state: CacheState
    scores: Scores
    limits: Limits
    files: Files

    def plan(self, **changed: Any) -> Plan:
        world = self._replace(**changed)
        return ValuePlanner(lambda _: world.scores, world.limits, world.files, DAY_S).plan(world.state)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = rng.integers(1, 100, N_FILES)
    on_disk = rng.choice(N_FILES, draw(st.integers(0, N_FILES)), replace=False)
    scored = rng.choice(N_FILES, draw(st.integers(0, N_FILES)), replace=False)
    held = int(sizes[on_disk].sum())
    inflow = draw(st.integers(0, 2 * held + 1))
    state = CacheState(
        as_of_s=AS_OF,
        capacity_bytes=max(1, int(held * draw(st.floats(0.9, 3)))),
        low_watermark=0.9,
        high_watermark=0.95,
        item=on_disk,
        bytes_on_disk=sizes[on_disk],
        last_access_s=AS_OF - rng.integers(0, 10_000, len(on_disk)),
        pinned=rng.random(len(on_disk)) < 0.3,
        is_open=rng.random(len(on_disk)) < 0.1,
        inflow_bytes=inflow,
        peak_inflow_bytes=int(inflow * draw(st.floats(0, 2))),
        lru_age_s=draw(st.none() | st.integers(60, 10**6)),
    )
    scores = Scores(
        as_of_s=AS_OF - draw(st.sampled_from([0, 900])),
        item=scored,
        size_bytes=sizes[scored],
        horizons_s=HORIZONS,
        probability=rng.random((len(HORIZONS), len(scored))),
        was_read=rng.random(len(scored)) < 0.5,
    )
    limits = Limits(
        cycle_s=3600,
        pin_share=draw(st.floats(0, 1)),
        evict_inflow=draw(st.floats(0, 3)),
        prefetch_share=draw(st.floats(0, 1)),
        min_prefetch_probability=draw(st.floats(0, 1)),
        read_once_below=draw(st.floats(0, 0.3)),
        hysteresis=draw(st.floats(0, 0.5)),
        dataset_bonus=draw(st.sampled_from([0.0, 0.5])),
        wan_bytes_per_hour=draw(st.none() | st.integers(0, 2000)),
        quiet_hours=draw(st.none() | st.tuples(st.integers(0, 24), st.integers(0, 24))),
        origin_bytes=draw(st.none() | st.just(np.array([0, 150, 2**62]))),
        cached_fraction=draw(st.sampled_from([1.0, 0.5])),
    )
    files = plain_files(
        N_FILES,
        is_control=rng.random(N_FILES) < 0.1,
        treatment=rng.choice(4, N_FILES, p=[0.7, 0.1, 0.1, 0.1]),
        is_here=rng.random(N_FILES) < 0.9,
        dataset=rng.integers(-1, 8, N_FILES),
        tier=rng.integers(-1, 3, N_FILES),
        origin=rng.integers(-1, 3, N_FILES),
        read_share=rng.random(N_FILES),
    )
    return World(state, scores, limits, files)


def sizes_of(world: World) -> dict[int, int]:
    size = dict(zip(world.scores.item.tolist(), world.scores.size_bytes.tolist(), strict=True))
    return size | dict(zip(world.state.item.tolist(), world.state.bytes_on_disk.tolist(), strict=True))


@given(worlds())
def test_a_plan_is_never_over_its_limits(world: World) -> None:
    state, _, limits, files = world
    plan, size = world.plan(), sizes_of(world)
    low = 0.9 * state.capacity_bytes
    pinned = sum(size[i] for i in plan.of(Action.PIN).tolist())
    assert pinned <= limits.pin_share * low
    open_bytes = int(state.bytes_on_disk[state.is_open].sum())
    assert pinned <= max(0, low - max(0.2 * state.capacity_bytes - 1, state.peak_inflow_bytes + open_bytes))
    fetched = plan.of(Action.PREFETCH).tolist()
    brought = sum(size[i] for i in fetched)
    assert brought == plan.cost_bytes.sum() <= limits.prefetch_share * state.inflow_bytes
    assert pinned + brought <= low or brought == 0
    if limits.wan_bytes_per_hour is not None and brought:
        assert brought + state.inflow_bytes <= limits.wan_bytes_per_hour or limits.quiet_s(AS_OF) < 3600
    if limits.origin_bytes is not None:
        for code, most in enumerate(limits.origin_bytes.tolist()):
            assert sum(size[i] for i in fetched if files.origin[i] == code) <= most
    assert not files.is_control[plan.item[plan.action != Action.UNPIN]].any()


@given(worlds())
def test_the_parts_of_datasets_that_do_not_pay_stay_away(world: World) -> None:
    limits = dataclasses.replace(world.limits, cached_fraction=0.5)
    plan, size = world.plan(limits=limits), sizes_of(world)
    for code in range(8):
        members = [i for i in world.scores.item.tolist() if world.files.dataset[i] == code]
        worth = 0.5 * sum(world.scores.size_bytes[world.scores.item == i][0] for i in members)
        pinned = [i for i in plan.of(Action.PIN).tolist() if world.files.dataset[i] == code]
        assert sum(size[i] for i in pinned) <= worth
        held = sum(size[i] for i in world.state.item.tolist() if world.files.dataset[i] == code)
        fetched = [i for i in plan.of(Action.PREFETCH).tolist() if world.files.dataset[i] == code]
        assert not fetched or held + sum(size[i] for i in fetched) <= worth


@given(worlds())
def test_every_item_is_named_once_and_where_it_can_act(world: World) -> None:
    state, _, _limits, files = world
    plan = world.plan()
    on_disk = set(state.item.tolist())
    held = [plan.of(a) for a in (Action.PIN, Action.EVICT)]
    assert set(np.concatenate(held).tolist()) <= on_disk
    assert not set(plan.of(Action.PREFETCH).tolist()) & on_disk
    assert set(plan.of(Action.UNPIN).tolist()) <= set(state.item[state.pinned].tolist())
    assert len(np.unique(np.concatenate(held))) == sum(map(len, held))
    assert not set(state.item[state.is_open].tolist()) & set(plan.of(Action.EVICT).tolist())
    planned = np.concatenate([plan.of(Action.PIN), plan.of(Action.PREFETCH)])
    assert files.is_here[planned].all()
    assert np.isin(files.treatment[planned], [Treatment.PLANNED, Treatment.PIN]).all()
    never = files.treatment[state.item] == Treatment.NEVER
    must_go = state.item[never & ~state.is_open & ~files.is_control[state.item]]
    assert set(must_go.tolist()) <= set(plan.of(Action.EVICT).tolist())
    kept = np.isin(files.treatment, [Treatment.PIN, Treatment.EXCLUDED])
    assert not kept[plan.of(Action.EVICT)].any()
    for action in Action:
        assert plan.rank[plan.action == action].tolist() == list(range(1, len(plan.of(action)) + 1))


@given(worlds())
def test_the_order_of_the_input_does_not_matter(world: World) -> None:
    scores = world.scores
    backwards = Scores(
        scores.as_of_s,
        scores.item[::-1],
        scores.size_bytes[::-1],
        HORIZONS,
        np.ascontiguousarray(scores.probability[:, ::-1]),
        scores.was_read[::-1],
    )
    # Sums of siblings differ in the last bit with their order; without them nothing may.
    same_time = dataclasses.replace(world.state, last_access_s=np.zeros_like(world.state.last_access_s))
    first, second = world.plan(state=same_time), world.plan(state=same_time, scores=backwards)
    if world.limits.dataset_bonus == 0:
        for action in Action:
            assert first.of(action).tolist() == second.of(action).tolist()


@given(worlds())
def test_evictions_are_no_more_than_needed(world: World) -> None:
    state, scores, limits, files = world
    plan, size = world.plan(), sizes_of(world)
    evicted = plan.of(Action.EVICT).tolist()
    likely = dict(zip(scores.item.tolist(), scores.probability.max(axis=0).tolist(), strict=True))
    room = (
        0.95 * state.capacity_bytes - int(plan.cost_bytes.sum()) - sum(size[i] for i in state.item.tolist())
    )
    needed = limits.evict_inflow * state.peak_inflow_bytes - room
    worth_it = [
        i
        for i in evicted
        if files.treatment[i] != Treatment.NEVER and likely.get(i, 0) >= limits.read_once_below
    ]
    if limits.evict_inflow == 0:
        assert all(files.treatment[i] == Treatment.NEVER for i in evicted)
    elif worth_it:
        assert sum(size[i] for i in worth_it[:-1]) < needed + 2
    left = set(state.item.tolist()) - set(plan.of(Action.PIN).tolist()) - set(evicted)
    if limits.evict_inflow and sum(size[i] for i in evicted) < needed - 2:  # all that may go is gone
        assert all(
            files.is_control[i]
            or state.is_open[state.item == i][0]
            or files.treatment[i] in (Treatment.EXCLUDED, Treatment.PIN)
            for i in left
        )


@given(worlds(), st.integers(0, 2**32 - 1))
def test_a_plan_does_not_flap_with_noise(world: World, seed: int) -> None:
    """What one plan pins keeps its pin in the next, if chances changed by less than the hysteresis."""
    noise = 1 + 0.04 * np.random.default_rng(seed).random(world.scores.item.size)
    limits = dataclasses.replace(world.limits, hysteresis=0.25, cached_fraction=1.0, read_once_below=0.0)
    one = (world.scores.probability[1:2] * 0.9, (DAY_S,))
    scores = dataclasses.replace(world.scores, as_of_s=AS_OF, probability=one[0], horizons_s=one[1])
    state = dataclasses.replace(world.state, last_access_s=np.zeros_like(world.state.last_access_s))
    state = dataclasses.replace(state, pinned=np.zeros_like(state.pinned))
    first = world.plan(scores=scores, limits=limits, state=state).of(Action.PIN)
    later = dataclasses.replace(state, pinned=np.isin(state.item, first))
    moved = dataclasses.replace(scores, probability=scores.probability * noise)
    second = world.plan(scores=moved, limits=limits, state=later)
    assert set(first.tolist()) <= set(second.of(Action.PIN).tolist())
    assert not second.of(Action.UNPIN).size


def cache(**changed: Any) -> CacheState:
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
        peak_inflow_bytes=20,
        lru_age_s=None,
    )
    return dataclasses.replace(state, **changed)


def one_horizon(item: list[int], size: list[int], probability: list[float], was_read: list[bool]) -> Scores:
    ids, sizes = np.array(item, np.int64), np.array(size, np.int64)
    return Scores(0, ids, sizes, (DAY_S,), np.array([probability]), np.array(was_read, bool))


FEW = one_horizon([2, 0, 3], [30, 30, 1], [0.9, 0.004, 0.8], [True, True, False])


def test_the_likeliest_are_pinned_and_reasons_say_so() -> None:
    judged = ValuePlanner(lambda _: FEW, LIMITS, plain_files(4), DAY_S).judge(cache())
    plan = judged.plan
    assert [plan.of(a).tolist() for a in Action] == [[1], [1], [2], [3]]
    assert reasons(plan, horizon_s=judged.horizon_s).to_pylist() == [
        "hardly any chance of a read within 1d, as nobody read it for longer than candidates are kept; "
        "no. 1 least worth its room: makes room for arrivals",
        "hardly any chance of a read within 1d, as nobody read it for longer than candidates are kept; "
        "no longer among the best on disk",
        "90 % chance of a read within 1d; no. 1 most worth its room: among the best on disk",
        "80 % chance of a read within 1d; unread file of a dataset in use",
    ]
    assert plan.bound_by[Action.PIN] == "pin_share of the low watermark"


def test_every_file_can_be_explained() -> None:
    files = plain_files(7, treatment=np.array([0, 0, 0, 0, 0, 1, 3]))
    judged = ValuePlanner(lambda _: FEW, LIMITS, files, DAY_S).judge(cache())
    told = [explain(judged, item) for item in range(7)]
    assert [one.action for one in told] == [None, "evict", "pin", "prefetch", None, None, None]
    assert [one.rank for one in told] == [2, 3, 1, 1, None, None, None]
    assert told[2].predictions == {"1d": 0.9} and told[2].value == pytest.approx(27)
    assert "within the pin limit" in told[0].because and "nothing predicts" in told[4].because
    assert "rule excludes" in told[5].because and "out of the cache" in told[6].because
    assert told[0].limits["pin"] == "54 B: pin_share of the low watermark"


def test_a_file_read_since_the_predictions_is_judged_by_its_siblings() -> None:
    scores = dataclasses.replace(
        one_horizon([0, 3, 4, 5], [30] * 4, [0.9, 0.1, 0.3, 0.8], [True] * 4), as_of_s=-600
    )
    files = plain_files(6, dataset=np.array([1, 0, 2, 0, 0, 1]), tier=np.array([0, 0, 1, 0, 0, 1]))
    state = cache(last_access_s=np.array([-10_000, -60, -60]))
    disk = ValuePlanner(lambda _: scores, LIMITS, files, DAY_S).judge(state).case.disk
    assert disk.probability == pytest.approx([0.9, 0.2, 0.8])  # its own; its dataset's mean; its tier's
    assert disk.cause.tolist() == [Cause.VALUE, Cause.SIBLINGS, Cause.SIBLINGS]


@pytest.mark.parametrize("pinned", [0, 3])
def test_an_empty_forecast_plans_only_evictions(pinned: int) -> None:
    state = cache(
        as_of_s=100_000,
        last_access_s=np.array([0, 0, 100_000]),
        pinned=np.arange(3) < pinned,
        is_open=np.array([False, False, True]),
        inflow_bytes=500,
        peak_inflow_bytes=500,
    )
    none = dataclasses.replace(one_horizon([], [], [], []), as_of_s=100_000)
    plan = ValuePlanner(lambda _: none, LIMITS, plain_files(3), DAY_S).plan(state)
    assert plan.of(Action.EVICT).tolist() == [0, 1]  # a job reads the third
    assert len(plan.of(Action.UNPIN)) == pinned


def test_requests_prefer_small_files_and_cpu_hours_far_ones() -> None:
    scores = one_horizon([0, 1, 2], [10, 30, 30], [0.5, 0.6, 0.55], [True] * 3)
    state = cache(bytes_on_disk=np.array([10, 30, 30]), inflow_bytes=0, peak_inflow_bytes=0)
    files = plain_files(3, saved_hours_per_byte=np.array([1.0, 1.0, 5.0]))
    first = {
        objective: ValuePlanner(lambda _: scores, LIMITS, files, DAY_S, objective)
        .plan(state)
        .of(Action.PIN)[0]
        for objective in Objective
    }
    assert first == {Objective.BYTES: 1, Objective.REQUESTS: 0, Objective.CPU_HOURS: 2}


def test_a_dataset_comes_whole_or_not_at_all() -> None:
    files = plain_files(6, dataset=np.array([-1, -1, -1, 0, 0, 0]))
    scores = one_horizon([3, 4, 5], [4, 4, 4], [0.7, 0.65, 0.55], [False] * 3)
    state = cache(bytes_on_disk=np.array([1, 1, 1]), inflow_bytes=100)

    def fetched(share: float, bonus: float) -> list[int]:
        limits = dataclasses.replace(
            LIMITS, prefetch_share=share, dataset_bonus=bonus, min_prefetch_probability=0.6
        )
        return ValuePlanner(lambda _: scores, limits, files, DAY_S).plan(state).of(Action.PREFETCH).tolist()

    assert fetched(0.12, 0.0) == [3, 4]
    assert fetched(0.12, 0.5) == [3, 4, 5]
    assert fetched(0.11, 0.5) == []  # it would be cut in two
