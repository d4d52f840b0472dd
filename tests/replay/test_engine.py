"""The XCache engine against a brute force that sorts the whole disk at every check; single rules by hand."""

import dataclasses
import pickle
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
from replay.comparison import Candidates, compare, replay_of
from replay.config import CacheConfig, expression, matching
from replay.engine import Run, drive, simulate
from replay.kernels.disk import TOUCH_ROOM
from replay.planner import Actions, CacheState
from replay.result import Result
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
    counted = window(trace, None)
    early, late = runs = [Run(trace, config, counted, planner, cycle_s=600) for planner in planners]
    early._disk.sums[TOUCH_ROOM] = room  # that of so few files is all of the array, as in `late`
    drive(runs, int(trace.time_s[-1]) + 1)
    assert planners[0].seen == planners[1].seen
    assert early.result("").wan_bytes == late.result("").wan_bytes


@cases(40, thorough=1000)
@given(traces(), configs(), times, times, st.integers(0, 9))
def test_replays_in_step_that_count_anew_on_the_way_are_those_of_each_alone(
    trace: Trace, config: CacheConfig, tried_s: int, count_from_s: int, seed: int
) -> None:
    first_s, last_s = int(trace.time_s[0]), int(trace.time_s[-1])
    count_from_s = int(np.clip(count_from_s, first_s, last_s))
    tried_s = int(np.clip(tried_s, first_s, count_from_s))
    cycles_s = [600, 600, 900]
    planners = [RandomPlanner(trace.n_items, seed + k) for k in range(3)]
    runs = [
        Run(trace, config, window(trace, tried_s), planner, cycle_s=cycle_s)
        for planner, cycle_s in zip(planners, cycles_s, strict=True)
    ]

    def alone(k: int, of: Trace, count_from_s: int) -> tuple[Result, list[Any]]:
        planner = RandomPlanner(trace.n_items, seed + k)
        result = simulate(of, config, planner=planner, cycle_s=cycles_s[k], count_from_s=count_from_s)
        return dataclasses.replace(result, seconds=0.0), planner.seen

    boundaries: list[int] = []
    if trace.first_at(tried_s) < trace.first_at(count_from_s):
        tried = trace.until(count_from_s)
        drive(runs, int(tried.time_s[-1]) + 1, workers=2, on_boundary=boundaries.append)
        for k, run in enumerate(runs):
            assert run.counted_wan_bytes == alone(k, tried, tried_s)[0].wan_bytes
    for run in runs:
        run.count_from(count_from_s)
    drive(runs, last_s + 1, workers=2, on_boundary=boundaries.append)
    assert boundaries == sorted(set(boundaries))
    for k, run in enumerate(runs):
        result, seen = alone(k, trace, count_from_s)
        in_step = dataclasses.replace(run.result(result.policy), seconds=0.0)
        assert pickle.dumps(in_step) == pickle.dumps(result)
        assert planners[k].seen == seen


def test_a_planner_that_fails_in_step_with_others_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace(np.arange(50) * 600, np.arange(50, dtype=np.int32) % 5, np.full(5, 10))
    planners = [RandomPlanner(5, k) for k in range(4)]
    runs = [Run(trace, CacheConfig(40), window(trace, None), planner, cycle_s=600) for planner in planners]
    boundaries: list[int] = []

    def fail(state: CacheState) -> Actions:
        raise InputError(f"no predictions at {state.as_of_s}")

    def on_boundary(at_s: int) -> None:
        boundaries.append(at_s)
        if at_s == 6000:
            monkeypatch.setattr(planners[2], "actions", fail)

    with pytest.raises(InputError, match="no predictions at 6600"):
        drive(runs, 50 * 600, workers=2, on_boundary=on_boundary)
    assert boundaries == list(range(0, 6001, 600))


def test_a_replay_that_is_over_stands_beside_those_that_follow_as_if_it_were_one_of_them() -> None:
    trace = Trace(np.arange(400) * 60, np.arange(400, dtype=np.int32) * 7 % 23, np.full(23, 10))
    config, name = CacheConfig(100, 0.5, 0.8), "plan"
    times: dict[str, Any] = {"cycle_s": 600, "plan_from_s": 1200}
    run = Run(trace, config, window(trace, 6000), RandomPlanner(23, 1), **times)
    drive([run], int(trace.time_s[-1]) + 1)
    compared = [
        compare(
            trace,
            [Candidates(100, {"lru": None, "bound": None}, config, {"xcache": None, name: planner}, **times)],
            count_from_s=6000,
        )[0]
        for planner in (RandomPlanner(23, 1), replay_of(run, name))
    ]
    results = [
        {of: dataclasses.replace(row.result, seconds=0.0) for of, row in at.rows.items()} for at in compared
    ]
    assert pickle.dumps(results[0]) == pickle.dumps(results[1])
    assert results[0][name].prefetch_bytes
    assert compared[1].rows[name].cpu_s == run.cpu_s > 0


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
    trace, config = Trace(ids([1, 300]), ids([0, 1]), np.full(20, 10, np.int64)), CacheConfig(100)
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
