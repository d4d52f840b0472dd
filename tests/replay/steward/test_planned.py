"""Plans and a steward in one cache: every byte of the pair, against a slow twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contexts import context_with
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_oracle import Wishes, brute_pair

from replay.planner import Actions, CacheState
from replay.policies import run_policy
from replay.result import Result
from replay.steward import new_order
from replay.steward.delayed_cache import NO_DELAY, XCACHE, Delays, Plans
from replay.steward.policies import Replayed
from replay.trace import Trace

KEYS = (
    *("as_of_s", "item", "bytes_on_disk", "last_access_s", "pinned"),
    *("inflow_bytes", "peak_inflow_bytes", "sure_inflow_bytes"),
)


class Asked:
    """Answers each state by `decide`, and keeps what it was told; `may_be_open`: whether files may be."""

    may_be_open = False

    def __init__(self, decide: Any) -> None:
        self.decide, self.states = decide, list[dict[str, Any]]()

    def __call__(self, state: dict[str, Any]) -> Wishes:
        self.states.append(state)
        wishes: Wishes = self.decide(state)
        return wishes

    def actions(self, state: CacheState) -> Actions:
        plain = {key: np.asarray(getattr(state, key)).tolist() for key in KEYS}
        assert state.lru_age_s is None
        assert (state.last_access_s[state.is_open] > state.as_of_s).all()
        assert self.may_be_open or not state.is_open.any()
        return Actions(*(np.array(files, np.int64) for files in self(plain)))


class Few(Asked):
    """The same beside jobs that read for a while."""

    may_be_open = True


def at_random(seed: int, m: int) -> Any:
    """Lists drawn from all files, so that they overlap, repeat what is there, and name what is absent."""

    def decide(state: dict[str, Any]) -> Wishes:
        draw = np.random.default_rng([seed, state["as_of_s"]])
        return Wishes(*(draw.permutation(m)[: draw.integers(0, 1 + m // 2)].tolist() for _ in range(4)))

    return decide


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
    ours, theirs = Asked(at_random(seed, m)), Asked(at_random(seed, m))
    found = replay(trace, capacity, ours, cycle_s=cycle_s, from_s=from_s, count_s=count_s, delays=NO_DELAY)
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
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.peak_usage_bytes == peak
    assert found.hourly.wan_bytes.sum() == found.wan_bytes


@pytest.mark.parametrize("seed", range(6))
def test_with_the_delays_of_a_live_cache_the_books_balance_and_nothing_exceeds_the_disk(seed: int) -> None:
    draw = np.random.default_rng(seed)
    times = np.cumsum(draw.integers(0, 400, 3000))
    trace = Trace(times, (draw.geometric(0.02, 3000) % 150).astype(np.int32), draw.integers(1, 900, 150))
    decide = at_random(seed, 150)
    few = Few(lambda state: Wishes(*(files[:6] for files in decide(state))))
    capacity = 20_000
    found = replay(trace, capacity, few, cycle_s=3600, from_s=0, count_s=int(times[900]), delays=XCACHE)
    assert found.peak_usage_bytes <= capacity
    assert found.prefetch_bytes == found.prefetch_read_bytes + found.wasted_bytes > 0
    assert found.wan_bytes == found.bytes_requested - found.hit_bytes + found.prefetch_bytes
    assert found.refetch_bytes > 0
