"""The planner on any cache: never over its limits, reproducible, best first, and steady."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from plain_files import plain_files

from prefetch.actions import Action
from prefetch.plan.items import Plan, PlanLimits
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.rules import Objective, Treatment
from prefetch.plan.scores import NEVER_S, Chances, Files, Scores
from prefetch.plan.value import ScoredFiles, absent, on_disk
from replay.planner import CacheState

N_FILES = 60
DAY_S = 86400
AS_OF = 1_000_000
HORIZONS = (3600, DAY_S, 7 * DAY_S)


class World(NamedTuple):
    state: CacheState
    scores: Scores
    limits: PlanLimits
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
        sure_inflow_bytes=draw(st.integers(0, inflow)),
    )
    scores = Scores(
        as_of_s=AS_OF - draw(st.sampled_from([0, 900])),
        item=scored,
        size_bytes=sizes[scored],
        horizons_s=HORIZONS,
        probability=rng.random((len(HORIZONS), len(scored))),
        last_read_s=np.where(
            rng.random(len(scored)) < 0.5, AS_OF - rng.integers(0, 10**6, len(scored)), NEVER_S
        ),
    )
    limits = PlanLimits(
        cycle_s=3600,
        prefetch_share=draw(st.floats(0, 1)),
        min_prefetch_probability=draw(st.floats(0, 1)),
        read_once_below=draw(st.floats(0, 0.3)),
        hysteresis=draw(st.floats(0, 0.5)),
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
    assert pinned <= max(0, low - max(0.2 * state.capacity_bytes - 1, state.peak_inflow_bytes))
    beside = dataclasses.replace(limits, evicts=False).pin(state).n_bytes
    open_bytes = int(state.bytes_on_disk[state.is_open].sum())
    assert beside <= max(0, low - max(0.2 * state.capacity_bytes - 1, state.peak_inflow_bytes + open_bytes))
    fetched = plan.of(Action.PREFETCH).tolist()
    brought = sum(size[i] for i in fetched)
    assert brought == plan.cost_bytes.sum() <= limits.prefetch_share * state.inflow_bytes
    assert pinned + brought <= low or brought == 0
    if limits.wan_bytes_per_hour is not None and brought:
        assert brought + state.inflow_bytes <= limits.wan_bytes_per_hour or limits.quiet_s(AS_OF) < 3600
    if limits.origin_bytes is not None:
        for code, most in enumerate(limits.origin_bytes.tolist()):
            assert sum(size[i] for i in fetched if files.origin[i] == code) <= most
    assert not files.is_control[plan.item[plan.action != Action.UNPIN.code]].any()


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
        assert plan.rank[plan.action == action.code].tolist() == list(range(1, len(plan.of(action)) + 1))


@given(worlds())
def test_planning_changes_nothing_that_it_was_given(world: World) -> None:
    """What a judgement was made from is the same after its plan as when it was made anew."""
    state, scores, limits, files = world
    judged = ValuePlanner(lambda _: scores, limits, files, DAY_S).judge(state)
    assert judged.plan.item.size == judged.plan.value.size
    names = [field.name for field in dataclasses.fields(ScoredFiles) if field.name != "forecast"]
    names += ["probability", "longest", "value"]
    asked = (state, scores, files, Objective.BYTES, Chances(scores, judged.horizon))
    disk, candidates = on_disk(*asked, recent_s=limits.cycle_s), absent(*asked)
    for given_, anew in ((judged.case.disk, disk), (judged.case.candidates, candidates)):
        for name in names:
            np.testing.assert_array_equal(getattr(given_, name), getattr(anew, name), name)


@given(worlds())
def test_the_order_of_the_input_does_not_matter(world: World) -> None:
    scores = world.scores
    backwards = Scores(
        scores.as_of_s,
        scores.item[::-1],
        scores.size_bytes[::-1],
        HORIZONS,
        np.ascontiguousarray(scores.probability[:, ::-1]),
        scores.last_read_s[::-1],
    )
    # Sums of siblings differ in the last bit with their order; without them nothing may.
    same_time = dataclasses.replace(world.state, last_access_s=np.zeros_like(world.state.last_access_s))
    first, second = world.plan(state=same_time), world.plan(state=same_time, scores=backwards)
    for action in Action:
        assert first.of(action).tolist() == second.of(action).tolist()


@given(worlds(), st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
def test_the_actions_of_a_replay_are_those_of_the_plan(world: World, weight: float, queued: bool) -> None:
    scores = world.scores
    if queued:
        scores = dataclasses.replace(scores, n_jobs=np.arange(scores.item.size) % 3)
    planner = ValuePlanner(lambda _: scores, world.limits, world.files, DAY_S, model_weight=lambda _: weight)
    plan, actions = planner.plan(world.state), planner.actions(world.state)
    for action in Action:
        assert getattr(actions, action.value).tolist() == plan.of(action).tolist()


ABSURD = st.sampled_from([-(2**60), -1, 0, 2**60, 2**62])


@given(worlds(), st.tuples(ABSURD, ABSURD, ABSURD), st.booleans())
def test_a_plan_frees_no_more_than_it_brings_or_than_arrives(
    world: World, absurd: tuple[int, int, int], is_absurd: bool
) -> None:
    """But for files that a rule keeps out. An emptier cache loses nothing, whatever its inflow was."""
    state, files = world.state, world.files
    if is_absurd:
        last, peak, sure = absurd
        state = dataclasses.replace(state, inflow_bytes=last, peak_inflow_bytes=peak, sure_inflow_bytes=sure)
    plan, size = world.plan(state=state), sizes_of(world)
    freed = sum(size[i] for i in plan.of(Action.EVICT).tolist() if files.treatment[i] != Treatment.NEVER)
    used, capacity = int(state.bytes_on_disk.sum()), state.capacity_bytes
    arrives = max(state.peak_inflow_bytes, state.sure_inflow_bytes, 0)
    brought = int(plan.cost_bytes.sum())
    assert freed <= max(0, used + brought + arrives - int(0.95 * capacity))
    assert freed == 0 or used - freed + brought >= min(0.9 - 1e-9, 0.75) * capacity - 2
    if state.sure_inflow_bytes <= 0:
        assert freed == 0 or used - freed + brought >= 0.9 * capacity - 2


@given(worlds())
def test_the_next_plan_of_a_cache_in_which_nothing_came_frees_nothing_more(world: World) -> None:
    """What a plan freed and no file used since counts for the next one."""
    limits = dataclasses.replace(world.limits, prefetch_share=0.0)
    first = world.plan(limits=limits)
    state, gone = world.state, np.isin(world.state.item, first.of(Action.EVICT))
    left = dataclasses.replace(
        state,
        item=state.item[~gone],
        bytes_on_disk=state.bytes_on_disk[~gone],
        last_access_s=state.last_access_s[~gone],
        pinned=state.pinned[~gone],
        is_open=state.is_open[~gone],
    )
    second, size = world.plan(state=left, limits=limits), sizes_of(world)
    freed = [
        i
        for plan in (first, second)
        for i in plan.of(Action.EVICT).tolist()
        if world.files.treatment[i] != Treatment.NEVER
    ]
    arrives = max(state.peak_inflow_bytes, state.sure_inflow_bytes)
    most = int(state.bytes_on_disk.sum()) + arrives - int(0.95 * state.capacity_bytes)
    assert sum(size[i] for i in freed) <= max(0, most)


@given(worlds())
def test_a_plan_that_nothing_has_changed_keeps_every_pin(world: World) -> None:
    state = dataclasses.replace(world.state, pinned=np.zeros(world.state.item.size, bool))
    first = world.plan(state=state).of(Action.PIN)
    second = world.plan(state=dataclasses.replace(state, pinned=np.isin(state.item, first)))
    assert second.of(Action.PIN).tolist() == first.tolist()
    assert not second.of(Action.UNPIN).size


@given(worlds(), st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.01, 1))
def test_equal_chances_leave_the_order_of_last_use(world: World, weight: float, chance: float) -> None:
    """What is pinned was used later than the rest; nothing is evicted, as the purge goes by last use too.

    So it is for any chances where the models have no weight.
    """
    state, scores = world.state, world.scores
    item = np.union1d(scores.item, state.item)
    scores = Scores(
        AS_OF,
        item,
        np.array([sizes_of(world)[i] for i in item.tolist()]),
        HORIZONS,
        np.full((len(HORIZONS), item.size), chance)
        if weight
        else np.random.default_rng(item.size).random((len(HORIZONS), item.size)),
        np.full(item.size, NEVER_S),
    )
    limits = dataclasses.replace(world.limits, cached_fraction=1.0, read_once_below=0.0)
    files = plain_files(N_FILES, tier=world.files.tier, dataset=world.files.dataset)
    state = dataclasses.replace(state, pinned=np.zeros(state.item.size, bool))
    plan = ValuePlanner(lambda _: scores, limits, files, DAY_S, model_weight=lambda _: weight).plan(state)
    used = dict(zip(state.item.tolist(), state.last_access_s.tolist(), strict=True))
    pinned = plan.of(Action.PIN).tolist()
    rest = set(state.item.tolist()) - set(pinned)
    assert all(used[i] >= used[j] for i in pinned for j in rest)
    assert not plan.of(Action.EVICT).size
    assert weight > 0 or not plan.of(Action.PREFETCH).size


@given(worlds())
def test_an_empty_forecast_leaves_the_cache_to_its_purge(world: World) -> None:
    none = np.zeros(0, np.int64)
    scores = Scores(AS_OF, none, none, HORIZONS, np.zeros((len(HORIZONS), 0)), none)
    files = plain_files(N_FILES, dataset=world.files.dataset)
    plan = world.plan(
        scores=scores, files=files, limits=dataclasses.replace(world.limits, cached_fraction=1.0)
    )
    assert not plan.of(Action.EVICT).size and not plan.of(Action.PREFETCH).size
    assert sorted(plan.of(Action.UNPIN).tolist()) == sorted(world.state.item[world.state.pinned].tolist())
