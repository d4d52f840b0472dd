"""One cache, one rule at a time: what a replay counts, in traces small enough to follow by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from features.errors import ConfigError, InputError
from replay.config import CacheConfig
from replay.engine import simulate
from replay.planner import Actions
from replay.trace import Trace


def ids(values):
    return np.array(values, np.int64)


def small_trace(*reads):
    """Reads (second, item) of files of 10 bytes."""
    return Trace(ids([t for t, _ in reads]), ids([f for _, f in reads]), np.full(20, 10, np.int64))


class Fixed:
    """The same lists at the first boundary it is asked, nothing after."""

    def __init__(self, **lists):
        self.lists, self.asked = lists, 0

    def actions(self, state):
        self.asked += 1
        lists = self.lists if self.asked == 1 else {}
        return Actions(**{k: ids(lists.get(k, [])) for k in ("prefetch", "pin", "unpin", "evict")})


@pytest.mark.parametrize(("pins", "lost"), [([], 0), ([0], 1), ([0, 1], 2), (list(range(10)), 0)])
def test_a_pin_makes_a_file_young_and_protects_no_further(pins, lost):
    # 10 files of 10 B fill all of 100 B; the check at 300 s takes one of them, the longest unused.
    config = CacheConfig(100, 0.9, 0.95, 300)
    for file in range(10):
        trace = small_trace(*((t, t) for t in range(10)), (700, file))
        result = simulate(trace, config, planner=Fixed(pin=pins), cycle_s=100, plan_from_s=100)
        assert result.hits == (file != lost)


def test_a_pin_is_renewed_at_every_boundary_until_it_is_taken_back():
    reads = [(0, 0), *((100 * i + 50, 1 + i % 9) for i in range(9)), (999, 0)]
    config = CacheConfig(50, 0.6, 0.9, 100)
    assert simulate(small_trace(*reads), config, cycle_s=100).hits == 0
    assert simulate(small_trace(*reads), config, planner=Fixed(pin=[0]), cycle_s=100, plan_from_s=1).hits == 1


def test_a_file_that_does_not_fit_is_read_past_the_cache():
    result = simulate(small_trace((1, 0), (2, 1), (3, 2), (4, 0), (5, 2)), CacheConfig(20, 0.9, 1.0))
    assert (result.hits, result.bypassed_bytes, result.wan_bytes) == (1, 20, 40)


def test_an_evicted_file_that_returns_is_counted_once():
    reads = [(1, 0), (150, 0), (151, 0), (260, 3)]
    result = simulate(small_trace(*reads), CacheConfig(100), planner=Fixed(evict=[0]), cycle_s=100)
    assert (result.refetch_bytes, result.wan_bytes, result.hits) == (10, 30, 1)


def test_prefetched_bytes_are_charged_and_judged():
    reads = [(1, 0), (150, 7), (260, 3)]
    planner = Fixed(prefetch=[7, 8, 0, 7])
    result = simulate(small_trace(*reads), CacheConfig(100), planner=planner, cycle_s=100)
    assert (result.prefetch_bytes, result.prefetch_read_bytes, result.wasted_bytes) == (20, 10, 10)
    assert (result.wan_bytes, result.prefetch_precision) == (40, 0.5)


def test_what_was_prefetched_before_the_window_is_paid_in_it():
    reads = [(1, 0), (150, 0), (260, 7)]
    planner = Fixed(prefetch=[7])
    result = simulate(small_trace(*reads), CacheConfig(100), planner=planner, cycle_s=100, count_from_s=200)
    assert (result.requests, result.hits, result.wan_bytes, result.prefetch_bytes) == (1, 1, 10, 10)


def test_days_of_the_window_are_listed_without_gaps():
    day = 86400
    result = simulate(small_trace((5, 0), (day + 5, 0), (3 * day + 5, 1)), CacheConfig(100), count_from_s=day)
    assert result.daily.day.tolist() == [1, 2, 3]
    assert result.daily.hits.tolist() == [1, 0, 0]
    assert result.daily.misses.tolist() == [0, 0, 1]
    assert result.daily.wan_bytes.tolist() == [0, 0, 10]


def test_wrong_settings_are_named():
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


def test_results_are_frozen():
    result = simulate(small_trace((1, 0)), CacheConfig(100))
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.hits = 7
