"""Known work in a plan: certain within the horizons that its start falls in, and bound by the same limits."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prefetch.actions import Action
from prefetch.plan import PlanLimits, Scores, Treatment, ValuePlanner, plain_files
from prefetch.plan.explain import reasons
from prefetch.plan.lists import Case
from prefetch.plan.planner import Prefill, prefill
from prefetch.plan.scores import KnownWork, certain, with_known
from prefetch.plan.value import Objective, absent, on_disk
from replay.planner import CacheState

N = 40
HOUR_S, DAY_S = 3600, 86400
HORIZONS = (HOUR_S, DAY_S, 7 * DAY_S)
ROOMY = PlanLimits(cycle_s=HOUR_S, prefetch_share=1.0, min_prefetch_probability=0.6)


def ids(*values: int) -> Any:
    return np.array(values, np.int64)


def work(**changes: Any) -> KnownWork:
    told = {"item": ids(3, 30), "size_bytes": ids(10, 10), "n_jobs": ids(12, 1), "wait_s": ids(0, 0)}
    return KnownWork(**(told | changes))


def scores(item: Any, probability: float = 0.1) -> Scores:
    n = len(item)
    chance = np.full((len(HORIZONS), n), probability)
    return Scores(0, np.array(item, np.int64), np.full(n, 10), HORIZONS, chance, np.zeros(n, np.int64))


def state(held: int, **changes: Any) -> CacheState:
    told: dict[str, Any] = {
        "as_of_s": 0,
        "capacity_bytes": 1000,
        "low_watermark": 0.9,
        "high_watermark": 0.95,
        "item": np.arange(held),
        "bytes_on_disk": np.full(held, 10),
        "last_access_s": np.full(held, -DAY_S),
        "pinned": np.zeros(held, bool),
        "is_open": np.zeros(held, bool),
        "inflow_bytes": 100,
        "peak_inflow_bytes": 100,
        "lru_age_s": None,
    }
    return CacheState(**(told | changes))


def test_what_is_queued_is_certain_from_its_start_on() -> None:
    known = with_known(scores(range(20)), work(wait_s=ids(2 * HOUR_S, 30 * DAY_S)))
    assert known.item.tolist() == list(range(20)), "work beyond the longest horizon is not added"
    assert known.probability[:, 3].tolist() == [0.1, 1.0, 1.0]
    assert known.queued.tolist() == [0, 0, 0, 12] + [0] * 16
    assert with_known(scores(range(20)), work(wait_s=ids(30 * DAY_S, 30 * DAY_S))).n_jobs is None


@settings(deadline=None)
@given(
    st.lists(st.integers(0, N - 1), unique=True, max_size=N),
    st.dictionaries(st.integers(0, N - 1), st.tuples(st.integers(1, 5), st.integers(0, 8 * DAY_S))),
)
def test_equals_a_plain_loop(scored: list[int], told: dict[int, tuple[int, int]]) -> None:
    given_ = scores(scored, 0.3)
    queue = KnownWork(
        ids(*told),
        np.full(len(told), 10),
        ids(*(n for n, _ in told.values())),
        ids(*(w for _, w in told.values())),
    )
    got = with_known(given_, queue)
    expected = {item: ([0.3] * 3, 0) for item in scored}
    for item, (n_jobs, wait_s) in told.items():
        if wait_s <= HORIZONS[-1]:
            before = expected.get(item, ([0.0] * 3, 0))[0]
            expected[item] = (
                [1.0 if h >= wait_s else p for h, p in zip(HORIZONS, before, strict=True)],
                n_jobs,
            )
    columns = zip(got.item.tolist(), got.probability.T.tolist(), got.queued.tolist(), strict=True)
    assert {item: (chances, jobs) for item, chances, jobs in columns} == expected


def test_a_plan_fetches_queued_files_first_and_holds_them_with_their_own_reason() -> None:
    known = with_known(scores(range(35), 0.7), work())
    plan = ValuePlanner(lambda _: known, ROOMY, plain_files(N), DAY_S).plan(state(20))
    told = reasons(plan, horizon_s=DAY_S).to_pylist()
    why = dict(zip(zip(plan.action.tolist(), plan.item.tolist(), strict=True), told, strict=True))
    assert plan.of(Action.PREFETCH)[0] == 30 and plan.of(Action.PIN)[0] == 3
    assert why[Action.PREFETCH.code, 30] == "queued: 1 job; read before, but not on disk"
    assert why[Action.PIN.code, 3].startswith("queued: 12 jobs; no. 1 most worth its room")
    assert "queued" not in why[Action.PIN.code, 4]
    unread = with_known(scores(range(20)), work())
    plan = ValuePlanner(lambda _: unread, ROOMY, plain_files(N), DAY_S).plan(state(20))
    assert reasons(plan, horizon_s=DAY_S).to_pylist()[-1] == "queued: 1 job; not on disk yet"


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(20, N - 1)), st.floats(0, 1), st.integers(0, 25))
def test_a_busy_queue_leaves_predictions_their_part(queued: set[int], share: float, n_fit: int) -> None:
    told = [ids(*queued), *(np.full(len(queued), n) for n in (10, 1, 0))]
    known = with_known(scores(range(N), 0.9), KnownWork(*told))
    limits = dataclasses.replace(ROOMY, queued_share=share)
    at = state(0, inflow_bytes=10 * n_fit, peak_inflow_bytes=0)
    plan = ValuePlanner(lambda _: known, limits, plain_files(N), DAY_S).plan(at)
    fetched = plan.of(Action.PREFETCH).tolist()
    n_limit = min(n_fit, limits.prefetch(at).n_bytes // 10)
    n_first = min(len(queued), int(share * limits.prefetch(at).n_bytes) // 10)
    n_others = min(N - len(queued), n_limit - n_first)
    assert len(fetched) == min(N, n_limit)
    is_queued = [item in queued for item in fetched]
    assert is_queued == [True] * n_first + [False] * n_others + [True] * (len(fetched) - n_first - n_others)


def test_known_work_obeys_the_limits_of_any_plan() -> None:
    known = with_known(scores(range(20)), work())
    for files, limits in (
        (plain_files(N, is_control=np.ones(N, bool)), ROOMY),
        (plain_files(N, treatment=np.full(N, int(Treatment.NEVER))), ROOMY),
        (plain_files(N, is_here=np.zeros(N, bool)), ROOMY),
        (plain_files(N), PlanLimits(HOUR_S, 0.0, 0.6)),
        (plain_files(N), PlanLimits(HOUR_S, 1.0, 0.6, wan_bytes_per_hour=100)),
    ):
        plan = ValuePlanner(lambda _: known, limits, files, DAY_S).plan(state(20))
        assert not plan.of(Action.PREFETCH).size


def prefilled(told: KnownWork, at: CacheState, limits: PlanLimits = ROOMY, **files: Any) -> Prefill:
    known, about = certain(told, as_of_s=at.as_of_s, horizon_s=DAY_S), plain_files(N, **files)
    disk = on_disk(at, known, about, Objective.BYTES, 0, recent_s=HOUR_S)
    candidates = absent(at, known, about, Objective.BYTES, 0)
    return prefill(Case(at, known, about, limits, disk, candidates))


def test_a_prefill_holds_what_is_there_fetches_the_rest_and_drives_nothing_out() -> None:
    got = prefilled(work(), state(20))
    assert (got.plan.of(Action.PIN).tolist(), got.plan.of(Action.PREFETCH).tolist()) == ([3], [30])
    assert not got.plan.of(Action.EVICT).size and not got.plan.of(Action.UNPIN).size
    assert got.left_out == {}
    spoiled = prefilled(work(), state(20), is_control=np.arange(N) == 30)
    assert spoiled.left_out == {"of the control group, which is never planned": 1}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, N - 1), unique=True, min_size=1, max_size=N),
    st.integers(0, 20),
    st.integers(0, 2000),
    st.none() | st.integers(0, 400),
)
def test_a_prefill_is_never_over_its_limits(
    asked: list[int], held: int, capacity: int, wan: int | None
) -> None:
    n = len(asked)
    told = KnownWork(ids(*asked), np.full(n, 10), np.ones(n, np.int64), np.zeros(n, np.int64))
    pinned = np.arange(held) % 3 == 0
    at = state(held, capacity_bytes=max(1, capacity), pinned=pinned, peak_inflow_bytes=0, inflow_bytes=0)
    limits = PlanLimits(HOUR_S, 0.0, 0.6, wan_bytes_per_hour=wan)
    got = prefilled(told, at, limits)
    others = sum(10 for item in range(held) if pinned[item] and item not in asked)
    brought = got.plan.bytes_of(Action.PREFETCH)
    room = max(0, limits.pin(at).n_bytes - others)
    assert got.plan.bytes_of(Action.PIN) + brought <= room
    assert wan is None or brought <= wan
    taken = set(got.plan.of(Action.PIN).tolist()) | set(got.plan.of(Action.PREFETCH).tolist())
    assert taken <= set(asked) and n - len(taken) == sum(got.left_out.values())
