"""The planner on small caches whose best plan is known, and with known work, bound by the same limits."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_files import plain_files

from prefetch.actions import Action
from prefetch.plan.explain import explain, reasons
from prefetch.plan.items import Cause, PlanLimits
from prefetch.plan.lists import Case
from prefetch.plan.planner import Prefill, ValuePlanner, prefill
from prefetch.plan.rules import Objective, Treatment
from prefetch.plan.scores import NEVER_S, Chances, KnownWork, Scores, certain, with_known
from prefetch.plan.value import absent, on_disk
from replay.planner import CacheState

DAY_S = 86400
UNEVEN = np.array([45, 15, 30])
LIMITS = PlanLimits(cycle_s=3600, prefetch_share=0.1, min_prefetch_probability=0.5)


def cache(**changed: Any) -> CacheState:
    """A small one of three files, one of them pinned."""
    small: dict[str, Any] = {"capacity_bytes": 100, "low_watermark": 0.74, "bytes_on_disk": np.full(3, 30)}
    small |= {"last_access_s": np.full(3, -10_000), "pinned": np.array([False, True, False])}
    return state(3, **(small | {"inflow_bytes": 20, "peak_inflow_bytes": 20} | changed))


def one_horizon(item: list[int], size: list[int], probability: list[float], was_read: list[bool]) -> Scores:
    ids, sizes = np.array(item, np.int64), np.array(size, np.int64)
    return Scores(0, ids, sizes, (DAY_S,), np.array([probability]), np.where(was_read, -DAY_S, NEVER_S))


FEW = one_horizon([2, 0, 3], [30, 30, 1], [0.9, 0.004, 0.8], [True, True, False])


def test_the_likeliest_are_pinned_and_reasons_say_so() -> None:
    judged = ValuePlanner(lambda _: FEW, LIMITS, plain_files(4), DAY_S).judge(cache(bytes_on_disk=UNEVEN))
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
    assert plan.bound_by[Action.PIN] == "a fifth of the capacity stays free of pins"


def test_open_files_take_room_from_pins_beside_a_steward_only() -> None:
    """Of 100 bytes, 74 are below the watermark, 25 arrive in a cycle, and a file of 30 is open."""
    state = cache(is_open=np.array([True, False, False]), peak_inflow_bytes=25)
    beside = dataclasses.replace(LIMITS, evicts=False).pin(state)
    assert [LIMITS.pin(state).n_bytes, beside.n_bytes] == [49, 19]
    assert beside.what == "room under the low watermark for a cycle's arrivals and open files"


def test_every_file_can_be_explained() -> None:
    files = plain_files(7, treatment=np.array([0, 0, 0, 0, 0, 1, 3]))
    judged = ValuePlanner(lambda _: FEW, LIMITS, files, DAY_S).judge(cache(bytes_on_disk=UNEVEN))
    stated = [explain(judged, item) for item in range(7)]
    assert [one.action for one in stated] == [None, "evict", "pin", "prefetch", None, None, None]
    assert [one.rank for one in stated] == [2, 3, 1, 1, None, None, None]
    assert stated[2].predictions == {"1d": 0.9} and stated[2].value == pytest.approx(27)
    assert "within the pin limit" in stated[0].because and "nothing predicts" in stated[4].because
    assert "rule excludes" in stated[5].because and "out of the cache" in stated[6].because
    assert stated[0].limits["pin"] == "54 B: a fifth of the capacity stays free of pins"


def test_a_file_that_came_after_the_predictions_is_judged_by_its_siblings() -> None:
    scores = dataclasses.replace(
        one_horizon([0, 3, 4, 5], [30] * 4, [0.9, 0.1, 0.3, 0.8], [True] * 4), as_of_s=-600
    )
    files = plain_files(6, dataset=np.array([1, 0, 2, 0, 0, 1]), tier=np.array([0, 0, 1, 0, 0, 1]))
    state = cache(last_access_s=np.array([-10_000, -60, -60]))
    disk = ValuePlanner(lambda _: scores, LIMITS, files, DAY_S).judge(state).case.disk
    assert disk.probability == pytest.approx([0.9, 0.2, 0.8])  # its own; its dataset's mean; its tier's
    assert disk.cause.tolist() == [Cause.VALUE, Cause.SIBLINGS, Cause.SIBLINGS]


def test_a_file_of_no_known_dataset_or_tier_is_judged_by_all_files_read() -> None:
    known = one_horizon([0, 3, 4], [30] * 3, [0.9, 0.1, 0.5], [True, True, False])  # nobody has read 4
    scores = dataclasses.replace(known, as_of_s=-600)
    dataset, tier = np.array([0, -1, 7, 0, 0]), np.array([1, -1, 3, -1, -1])
    state = cache(last_access_s=np.array([-10_000, -60, -60]))
    planner = ValuePlanner(lambda _: scores, LIMITS, plain_files(5, dataset=dataset, tier=tier), DAY_S)
    assert planner.judge(state).case.disk.probability == pytest.approx([0.9, 0.5, 0.5])
    unread = dataclasses.replace(scores, last_read_s=np.full(3, NEVER_S))
    planner = dataclasses.replace(planner, scores_at=lambda _: unread)
    assert planner.judge(state).case.disk.probability == pytest.approx([0.9, 0.0, 0.0])


def test_a_file_read_since_the_predictions_is_judged_by_its_own_state() -> None:
    scores = dataclasses.replace(one_horizon([0, 1, 2], [30] * 3, [0.4] * 3, [True] * 3), as_of_s=-600)
    state = cache(last_access_s=np.array([-10_000, -60, -600]))
    planner = ValuePlanner(lambda _: scores, LIMITS, plain_files(3), DAY_S, model_weight=lambda _: 0.5)
    disk = planner.judge(state).case.disk
    assert disk.cause.tolist() == [Cause.VALUE] * 3
    assert disk.density[1] / disk.density[0] == pytest.approx((10_000 / 60) ** 0.5)


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


N = 40
HOUR_S = 3600
HORIZONS = (HOUR_S, DAY_S, 7 * DAY_S)
ROOMY = PlanLimits(cycle_s=HOUR_S, prefetch_share=1.0, min_prefetch_probability=0.6)


def ids(*values: int) -> Any:
    return np.array(values, np.int64)


def work(**changes: Any) -> KnownWork:
    stated = {"item": ids(3, 30), "size_bytes": ids(10, 10), "n_jobs": ids(12, 1), "wait_s": ids(0, 0)}
    return KnownWork(**({"certainty": np.ones(2), "late_s": ids(0, 0)} | stated | changes))


def scores(item: Any, probability: float = 0.1) -> Scores:
    n = len(item)
    chance = np.full((len(HORIZONS), n), probability)
    return Scores(0, np.array(item, np.int64), np.full(n, 10), HORIZONS, chance, np.zeros(n, np.int64))


def state(held: int, **changes: Any) -> CacheState:
    stated: dict[str, Any] = {
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
    return CacheState(**(stated | changes))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, N - 1), unique=True, max_size=N),
    st.dictionaries(
        st.integers(0, N - 1),
        st.tuples(st.integers(1, 5), st.integers(0, 8 * DAY_S), st.integers(0, 8 * DAY_S), st.floats(0, 1)),
    ),
)
def test_equals_a_plain_loop(scored: list[int], starts: dict[int, tuple[int, int, int, float]]) -> None:
    predictions = scores(scored, 0.3)
    n_jobs, waits_s, late_s, certainty = zip(*starts.values(), strict=True) if starts else ((),) * 4
    sure = np.array(certainty, np.float64)
    queue = KnownWork(ids(*starts), np.full(len(starts), 10), ids(*n_jobs), ids(*waits_s), sure, ids(*late_s))
    known = with_known(predictions, queue)
    expected: dict[int, Any] = {item: ([0.3] * 3, 0) for item in scored}
    for item, (n, wait_s, late, share) in starts.items():
        if wait_s <= HORIZONS[-1]:
            before = expected.get(item, ([0.0] * 3, 0))[0]
            half_s = max(HOUR_S, late / 2)
            chances = [share * (1 - 0.5 ** (max(0, h - wait_s) / half_s)) for h in HORIZONS]
            expected[item] = (list(map(max, before, chances)), n)
    columns = zip(known.item.tolist(), known.probability.T.tolist(), known.queued().tolist(), strict=True)
    assert {item: (pytest.approx(chances), jobs) for item, chances, jobs in columns} == expected
    assert (known.n_jobs is None) == (not any(wait_s <= HORIZONS[-1] for wait_s in waits_s))


def test_what_has_waited_for_weeks_holds_no_place_of_what_is_read_each_hour() -> None:
    waits = work(item=ids(15, 16), late_s=ids(20 * DAY_S, 0))
    known = with_known(scores(range(20), 0.4), waits)
    busy = state(20)
    half = dataclasses.replace(busy, peak_inflow_bytes=int(busy.low_watermark * busy.capacity_bytes) - 100)
    pinned = ValuePlanner(lambda _: known, ROOMY, plain_files(N), DAY_S).plan(half).of(Action.PIN)
    assert pinned.size == 10 and 16 in pinned and 15 not in pinned


def test_a_plan_fetches_queued_files_first_and_holds_them_with_their_own_reason() -> None:
    known = with_known(scores(range(35), 0.4), work())
    plan = ValuePlanner(lambda _: known, ROOMY, plain_files(N), DAY_S).plan(state(20))
    stated = reasons(plan, horizon_s=DAY_S).to_pylist()
    why = dict(zip(zip(plan.action.tolist(), plan.item.tolist(), strict=True), stated, strict=True))
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
    stated = [ids(*queued), *(np.full(len(queued), n) for n in (10, 1, 0, 1.0, 0))]
    known = with_known(scores(range(N), 0.9), KnownWork(*stated))
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


def prefilled(stated: KnownWork, at: CacheState, limits: PlanLimits = ROOMY, **files: Any) -> Prefill:
    known, about = certain(stated, as_of_s=at.as_of_s, horizon_s=DAY_S), plain_files(N, **files)
    disk = on_disk(at, known, about, Objective.BYTES, Chances(known, 0), recent_s=HOUR_S)
    candidates = absent(at, known, about, Objective.BYTES, Chances(known, 0))
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
    stated = KnownWork(ids(*asked), *(np.full(n, number) for number in (10, 1, 0, 1.0, 0)))
    pinned = np.arange(held) % 3 == 0
    at = state(held, capacity_bytes=max(1, capacity), pinned=pinned, peak_inflow_bytes=0, inflow_bytes=0)
    limits = PlanLimits(HOUR_S, 0.0, 0.6, wan_bytes_per_hour=wan)
    got = prefilled(stated, at, limits)
    others = sum(10 for item in range(held) if pinned[item] and item not in asked)
    brought = got.plan.bytes_of(Action.PREFETCH)
    room = max(0, limits.pin(at).n_bytes - others)
    assert got.plan.bytes_of(Action.PIN) + brought <= room
    assert wan is None or brought <= wan
    taken = set(got.plan.of(Action.PIN).tolist()) | set(got.plan.of(Action.PREFETCH).tolist())
    assert taken <= set(asked) and n - len(taken) == sum(got.left_out.values())


def test_what_a_job_waits_for_is_fetched_also_where_the_next_hour_alone_counts() -> None:
    hour = Scores(0, ids(0), ids(10), (HOUR_S,), np.full((1, 1), 0.1), ids(0))
    known = with_known(hour, work(late_s=ids(0, 0)))
    plan = ValuePlanner(lambda _: known, ROOMY, plain_files(N), HOUR_S).plan(state(20))
    assert plan.of(Action.PREFETCH).tolist() == [30]
    long_ago = with_known(hour, work(late_s=ids(0, 20 * DAY_S)))
    plan = ValuePlanner(lambda _: long_ago, ROOMY, plain_files(N), HOUR_S).plan(state(20))
    assert not plan.of(Action.PREFETCH).size


def test_the_fraction_that_pays_bounds_the_first_dataset_as_any_other() -> None:
    limits = dataclasses.replace(ROOMY, cached_fraction=0.5)
    for dataset in (-1, 0, 1):  # -1: no file is in a dataset, and the room bounds
        files = plain_files(N, dataset=np.full(N, dataset))
        busy = state(0, inflow_bytes=10 * N, peak_inflow_bytes=0)
        plan = ValuePlanner(lambda _: scores(range(N), 0.9), limits, files, DAY_S).plan(busy)
        assert plan.of(Action.PREFETCH).size == N // 2
