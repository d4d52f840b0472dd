"""The XCache engine against a brute force that sorts the whole disk at every check; single rules by hand."""

import dataclasses
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from xcache_oracle import brute_simulate, ids

from features.common.errors import ConfigError, InputError
from replay.bounds import byte_bound
from replay.config import CacheConfig, expression, matching
from replay.engine import Run, drive, simulate
from replay.kernels.disk import TOUCH_ROOM
from replay.planner import Actions, CacheState
from replay.trace import Trace, window


class RandomPlanner:
    """Lists drawn from the state's time alone; keeps what it was shown."""

    def __init__(self, n_items: int, seed: int, prefetches: bool = True) -> None:
        self.n_items, self.seed, self.prefetches = n_items, seed, prefetches
        self.seen: list[Any] = []

    def actions(self, state: CacheState) -> Actions:
        rng = np.random.default_rng([self.seed, state.as_of_s])
        order = np.argsort(state.item)
        columns = (state.item, state.bytes_on_disk, state.last_access_s, state.pinned, state.is_open)
        self.seen.append(
            (
                state.as_of_s,
                [column[order].tolist() for column in columns],
                state.inflow_bytes,
                state.lru_age_s,
            )
        )
        most = (4 if self.prefetches else 1, 2 * self.n_items, 3, 3)
        return Actions(*(rng.integers(0, self.n_items, rng.integers(0, n)) for n in most))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    m = draw(st.integers(1, 10))
    n = draw(st.integers(1, 60))
    gaps = draw(st.lists(st.sampled_from([0, 1, 7, 59, 60, 200, 900, 4000]), min_size=n, max_size=n))
    items = draw(st.lists(st.integers(0, m - 1), min_size=n, max_size=n))
    sizes = draw(st.lists(st.sampled_from([0, 1, 3, 10, 17, 40]), min_size=m, max_size=m))
    time_s = draw(st.integers(0, 8000)) + np.cumsum(gaps)
    opened = draw(st.lists(st.sampled_from([0, 1, 60, 500, 3000, 20_000]), min_size=n, max_size=n))
    shares = draw(st.lists(st.sampled_from([0, 0.1, 0.5, 1.0]), min_size=n, max_size=n))
    read = (np.array(shares) * ids(sizes)[items]).astype(np.int64)
    return Trace(
        time_s,
        ids(items),
        ids(sizes),
        names=pa.array([f"file.{'ab'[i % 2]}{i}" for i in range(m)]),
        close_s=draw(st.sampled_from([None, time_s + opened])),
        read_bytes=read,
    )


@st.composite
def configs(draw: st.DrawFn) -> CacheConfig:
    low = draw(st.sampled_from([0.3, 0.6, 0.9]))
    capacity = draw(st.integers(1, 90))
    return CacheConfig(
        capacity,
        low,
        draw(st.sampled_from([mark for mark in (0.3, 0.6, 0.95, 1.0) if mark >= low])),
        draw(st.sampled_from([60, 300, 700])),
        cold_age_s=draw(st.sampled_from([None, 50, 900, 5000])),
        cold_every=draw(st.integers(1, 3)),
        block_bytes=draw(st.sampled_from([None, 1, 4, 100])),
        ssd_bytes=draw(st.sampled_from([0, capacity // 3, capacity])),
        never_cache=draw(st.sampled_from([(), ("*.b*",), ("*a0", "file.a?")])),
    )


times = st.integers(0, 40_000)
cycles = st.sampled_from([20, 600, 1000, 3600])


@cases(80, thorough=5000)
@given(traces(), configs(), st.booleans(), st.tuples(cycles, times, times), st.integers(0, 9))
def test_the_engine_equals_the_brute_force(
    trace: Trace, config: CacheConfig, planned: bool, moments: Any, seed: int
) -> None:
    cycle_s, plan_from_s, count_from_s = moments
    count_from_s = int(np.clip(count_from_s, trace.time_s[0], trace.time_s[-1]))
    planners = [RandomPlanner(trace.n_items, seed) for _ in range(2)] if planned else [None, None]
    moments = {"cycle_s": cycle_s, "plan_from_s": plan_from_s, "count_from_s": count_from_s}
    result = simulate(trace, config, planner=planners[0], **moments)
    expect, fill = brute_simulate(trace, config, planner=planners[1], **moments)
    assert {key: getattr(result, key) for key in expect} == expect
    assert dict(zip(result.fill.time_s.tolist(), result.fill.used_bytes.tolist(), strict=True)) == fill
    assert result.prefetch_bytes == result.prefetch_read_bytes + result.wasted_bytes
    for series in (result.daily, result.hourly):
        for total in ("hits", "hit_bytes", "wan_bytes"):
            assert getattr(series, total).sum() == getattr(result, total)
    if planned:
        assert planners[0].seen == planners[1].seen


@cases(30, thorough=1000)
@given(traces(), configs(), st.integers(0, 9), st.integers(1, 4))
def test_touches_that_matter_no_more_may_be_forgotten_at_any_time(
    trace: Trace, config: CacheConfig, seed: int, room: int
) -> None:
    planners = [RandomPlanner(trace.n_items, seed) for _ in range(2)]
    early, late = runs = [Run(trace, config, window(trace, None), planner) for planner in planners]
    early._disk.sums[TOUCH_ROOM] = room  # that of so few files is all of the array, as in `late`
    drive(runs, cycle_s=600, plan_from_s=None, span=(int(trace.time_s[0]), int(trace.time_s[-1])))
    assert planners[0].seen == planners[1].seen
    assert early.result("", 0.0).wan_bytes == late.result("", 0.0).wan_bytes


@cases(50, thorough=2000)
@given(traces(), configs(), times, times, st.integers(0, 9))
def test_nothing_beats_the_bound(
    trace: Trace, config: CacheConfig, plan_from_s: int, count_from_s: int, seed: int
) -> None:
    config = dataclasses.replace(config, block_bytes=None)
    count_from_s = int(np.clip(count_from_s, trace.time_s[0], trace.time_s[-1]))
    for planner in (None, RandomPlanner(trace.n_items, seed), RandomPlanner(trace.n_items, seed, False)):
        result = simulate(
            trace, config, planner=planner, cycle_s=900, plan_from_s=plan_from_s, count_from_s=count_from_s
        )
        bound = byte_bound(trace, result.peak_usage_bytes, count_from_s=count_from_s)
        assert bound.wan_bytes <= result.wan_bytes


def small_trace(*reads: tuple[int, int]) -> Trace:
    """Reads (second, item) of files of 10 bytes."""
    return Trace(ids([t for t, _ in reads]), ids([f for _, f in reads]), np.full(20, 10, np.int64))


class Fixed:
    """The same lists at the first boundary it is asked, nothing after."""

    def __init__(self, **lists: list[int]) -> None:
        self.lists, self.asked = lists, 0

    def actions(self, state: CacheState) -> Actions:
        self.asked += 1
        lists = self.lists if self.asked == 1 else {}
        return Actions(**{k: ids(lists.get(k, [])) for k in ("prefetch", "pin", "unpin", "evict")})


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="watermarks"):
        CacheConfig(100, 0.95, 0.9)
    with pytest.raises(ConfigError, match="capacity_bytes"):
        CacheConfig(0)
    trace, config = small_trace((1, 0), (300, 1)), CacheConfig(100)
    with pytest.raises(ConfigError, match="cycle_s"):
        simulate(trace, config, cycle_s=0)
    with pytest.raises(InputError, match="after the last access"):
        simulate(trace, config, count_from_s=301)
    with pytest.raises(InputError, match="prefetch list"):
        simulate(trace, config, planner=Fixed(prefetch=[20]), cycle_s=100)


def test_patterns_with_many_stars_are_quick_and_mean_what_they_say() -> None:
    """Python's matcher alone would try 10^11 ways for one name of 1 024 characters."""
    is_test = matching(["/mon/*a*a*a*a*b", "/mon?/x*", "*.probe"])
    assert not is_test("/mon/" + 1019 * "a")
    named = ("/mon/xaxaxaxaxb", "/mon1/x", "/y.probe")
    others = ("/mon/xaxaxab", "/mon/x", "/y.probes", "")
    assert all(map(is_test, named)) and not any(map(is_test, others))
    assert matching([])("x") is None and matching(["*"])("") is not None


@given(st.lists(st.text("ab*?", max_size=6), min_size=1, max_size=3), st.text("ab", max_size=12))
def test_patterns_mean_the_same_to_every_matcher(patterns: list[str], text: str) -> None:
    assert (matching(patterns)(text) is None) == (re.fullmatch(expression(patterns), text) is None)
