"""`auto`, never much worse than the better of LRU and S3-FIFO; plans and a steward in one cache, by bytes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import IS_THOROUGH
from contexts import context_with
from hypothesis import given, settings
from hypothesis import strategies as st
from ladders import one_split
from pair_oracle import brute_pair
from random_plans import STATE, RandomPlans

from replay.access_context import AccessContext
from replay.kernels.chooser import FOLLOWED, Chooser, count, new_chooser, trust
from replay.kernels.delayed import Delays
from replay.planner import Actions, CacheState
from replay.policies import run_policy
from replay.policies.learned import Order
from replay.result import Result
from replay.steward import new_order
from replay.steward.delayed_cache import NO_DELAY, Plans
from replay.steward.policies import Replayed
from replay.trace import Trace

DAY_S = 86400
World = Callable[[np.random.Generator], tuple[list[np.ndarray], list[np.ndarray]]]
WORST = 1.03


def trace_of(times: list[np.ndarray], items: list[np.ndarray], seed: int) -> tuple[Trace, AccessContext]:
    """A trace of parts, and its context: fifty files in a row are a dataset."""
    order = np.argsort(np.concatenate(times), kind="stable")
    item = np.concatenate(items)[order].astype(np.int32)
    m = int(item.max()) + 1
    trace = Trace(
        np.concatenate(times)[order].astype(np.int64), item, np.random.default_rng(seed).integers(1, 100, m)
    )
    return trace, context_with(trace, np.arange(m) // 50)


def flips(draw: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """A week of files that are read for a while and never again, then a week of favourites under a scan."""
    times, items, fresh, n = [], [], 3000, 4000
    for week in range(6):
        begin = week * 7 * DAY_S
        times.append(np.sort(draw.uniform(begin, begin + 7 * DAY_S, n)))
        if week % 2:
            scanned = np.arange(n) % 2 == 0
            favourites = np.minimum(draw.zipf(1.3, n) - 1, 2999)
            items.append(np.where(scanned, fresh + np.arange(n) // 2, favourites))
            fresh += n // 2
        else:
            front = fresh + np.arange(n) // 4
            items.append(np.maximum(fresh, front - draw.exponential(150, n).astype(int)))
            fresh += n // 4
    return times, items


def scans(draw: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Favourites, and every other day a scan of as much as the cache has."""
    times: list[np.ndarray] = [np.sort(draw.uniform(0, 16 * DAY_S, 16_000))]
    items: list[np.ndarray] = []
    fresh = 3000
    items.append(np.minimum(draw.zipf(1.3, 16_000) - 1, 2999))
    for day in range(0, 16, 2):
        times.append(day * DAY_S + np.arange(1000) * 10.0)
        items.append(fresh + np.arange(1000))
        fresh += 1000
    return times, items


def twice(draw: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """A scan whose files are read again when S3-FIFO has let them go and LRU has not."""
    k, lag = np.arange(10_000), int(draw.integers(300, 500))
    return [k * 30.0, (k + lag) * 30.0 + 1], [k, k]


def wan(name: str, trace: Trace, context: AccessContext, capacity: int, orders: list[Order] | None) -> int:
    hit = np.zeros(trace.n_accesses, np.bool_)
    Replayed(context, lambda c: new_order(name, c, orders, n_files=trace.n_items))(trace, capacity, hit)
    return int(trace.size_bytes[trace.item[~hit]].sum())


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.02, 0.05] if IS_THOROUGH else [0.05])
@pytest.mark.parametrize("world", [flips, scans, twice])
def test_poison_costs_three_percent_at_most(world: World, share: float) -> None:
    """The model values what was read last and most the least."""
    trace, context = trace_of(*world(np.random.default_rng(1)), seed=2)
    capacity = int(share * trace.footprint_bytes)
    bad = [Order(float(trace.time_s[trace.n_accesses // 4]), one_split("recency_s", 7200.0, -9.0, 9.0))]
    lru, s3fifo, auto = (wan(name, trace, context, capacity, bad) for name in ("lru", "s3fifo", "auto"))
    learned = wan("learned", trace, context, capacity, bad)
    assert auto <= WORST * min(lru, s3fifo)
    assert learned > 0.99 * auto


def test_models_that_are_right_for_a_while_save_and_then_cost_little() -> None:
    """Files read once are worth the least, as they are; from the middle on the model says the opposite."""
    trace, context = trace_of(*scans(np.random.default_rng(1)), seed=2)
    capacity = int(0.05 * trace.footprint_bytes)
    times_s = [float(trace.time_s[at]) for at in (0, trace.n_accesses // 2)]
    models = [one_split("n_reads", 1.5, low, -low) for low in (-9.0, 9.0)]
    orders = [Order(at_s, model) for at_s, model in zip(times_s, models, strict=True)]
    lru, s3fifo, learned, auto = (
        wan(name, trace, context, capacity, orders) for name in ("lru", "s3fifo", "learned", "auto")
    )
    assert auto < min(lru, learned)
    assert auto <= WORST * s3fifo


LRU, GOOD, BAD, LEARNED, HALF = range(5)


def counted(chooser: Chooser, missed: list[int], at_s: float = 0.0) -> int:
    """Count what orders missed at a read; the one that is followed from then on."""
    chooser.missing[:] = missed
    count(chooser, at_s)
    return int(chooser.state[FOLLOWED])


def test_a_chooser_follows_what_surely_saves_and_no_other() -> None:
    """The third order is noise."""
    draw = np.random.default_rng(4)
    chooser = new_chooser(4, 1600)
    assert counted(chooser, [0, 0, 0, 0]) == LRU
    for _ in range(2000):
        followed = counted(chooser, [20, 15, int(draw.integers(0, 41)), 25])
    assert followed == GOOD
    for _ in range(4000):
        followed = counted(chooser, [20, 21, int(draw.integers(10, 41)), 25])
    assert followed == LRU


def test_a_trusted_order_is_left_before_it_costs_more_than_a_hundredth_of_a_week() -> None:
    """LRU misses 20 a minute, the best heuristic 15; the trusted order 15, then 25, and its rival 15."""
    chooser, now_s, week = new_chooser(5, 1600), 0.0, 7 * 1440 * 20
    lost = 0

    def minutes(n: int, *missed: int, until: int = -1) -> int:
        nonlocal now_s, lost
        for _ in range(n):
            now_s += 60
            lost += missed[2] - missed[0]
            followed = counted(chooser, [20, *missed], now_s)
            if followed == until:
                break
        return followed

    assert minutes(3000, 15, 30, 20, 20) == GOOD
    trust(chooser, LEARNED)
    assert minutes(3000, 15, 30, 15, 20) == LEARNED
    lost = 0
    assert minutes(3000, 15, 30, 25, 20, until=GOOD) == GOOD and 0 < lost < 0.011 * week
    assert minutes(3000, 15, 30, 25, 10, until=HALF) == HALF
    assert minutes(3000, 15, 30, 5, 10, until=LEARNED) == LEARNED


def test_a_trusted_order_is_kept_while_another_one_saves_less_than_a_change_costs() -> None:
    """The rival saves 10 bytes a minute: a fifth of the capacity, more than 1 % of a week, in a thousand."""
    chooser, rival, now_s = new_chooser(5, 50_000), [20, 15, 30, 25, 20], 0.0
    trust(chooser, LEARNED)
    n_lost = 0
    while counted(chooser, rival, now_s) == LEARNED:
        now_s += 60
        n_lost += 10
    assert chooser.state[FOLLOWED] == GOOD
    assert n_lost == pytest.approx(0.2 * 50_000, abs=20)


class Asked(RandomPlans):
    """No file is ever open."""

    def actions(self, state: CacheState) -> Actions:
        assert state.lru_age_s is None and not state.is_open.any()
        return super().actions(state)


def replay(
    trace: Trace, capacity: int, planner: Any, *, cycle_s: int, from_s: int, count_s: int, delays: Delays
) -> Result:
    plans = Plans(planner, capacity, 0.9, 0.95, cycle_s, from_s)
    pair = Replayed(context_with(trace), lambda n: new_order("lru", n, None), delays, plans=plans)
    return run_policy("steward+plan", trace, capacity, count_from_s=count_s, policy=pair)


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(2, 12),
    st.integers(5, 200),
    st.sampled_from([50, 300, 86_400]),
    st.data(),
)
def test_the_pair_is_its_slow_twin_byte_by_byte(
    seed: int, m: int, n: int, cycle_s: int, data: st.DataObject
) -> None:
    draw = np.random.default_rng(seed)
    times = np.cumsum(draw.integers(0, 2 * cycle_s // 5, n)) + 7
    trace = Trace(times, draw.integers(0, m, n).astype(np.int32), draw.integers(1, 60, m))
    capacity = data.draw(st.integers(1, 1 + int(trace.size_bytes.sum())))
    from_s, count_s = (int(times[data.draw(st.integers(0, n - 1))]) for _ in range(2))
    keys = (*STATE, "peak_inflow_bytes", "sure_inflow_bytes")
    ours, theirs = (Asked(seed, m, most=m // 2, keys=keys) for _ in range(2))
    result = replay(trace, capacity, ours, cycle_s=cycle_s, from_s=from_s, count_s=count_s, delays=NO_DELAY)
    expected = brute_pair(
        times.tolist(),
        trace.item.tolist(),
        trace.size_bytes.tolist(),
        capacity,
        plan=theirs,
        cycle_s=cycle_s,
        plan_from_s=from_s,
        count_from_s=count_s,
    )
    assert ours.states == theirs.states
    peak = expected.pop("peak_usage_bytes")
    assert {name: getattr(result, name) for name in expected} == expected
    assert result.peak_usage_bytes == peak
    assert result.hourly.wan_bytes.sum() == result.wan_bytes
