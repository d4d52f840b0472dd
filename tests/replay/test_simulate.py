"""One cache, one rule at a time: what a replay counts, in traces small enough to follow by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from features.common.errors import ConfigError, InputError
from replay.config import CacheConfig
from replay.engine import simulate
from replay.kernels.disk import BYPASSED, HIT, REFETCHED
from replay.planner import Actions, CacheState
from replay.trace import Trace


def ids(values: object) -> Any:
    return np.array(values, np.int64)


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


def test_days_of_the_window_are_listed_without_gaps() -> None:
    day = 86400
    result = simulate(small_trace((5, 0), (day + 5, 0), (3 * day + 5, 1)), CacheConfig(100), count_from_s=day)
    assert result.daily.day.tolist() == [1, 2, 3]
    assert result.daily.hits.tolist() == [1, 0, 0]
    assert result.daily.misses.tolist() == [0, 0, 1]
    assert result.daily.wan_bytes.tolist() == [0, 0, 10]


def test_what_is_never_cached_is_read_past_it() -> None:
    trace = dataclasses.replace(
        small_trace((1, 0), (2, 0), (3, 1), (4, 1)),
        names=pa.array(["user:panda.um.x"] + ["mc:f.(1)"] * 19),
    )
    config = CacheConfig(100, never_cache=("panda.um.*", "f.?2?"))
    result = simulate(trace, config, planner=Fixed(prefetch=[0]), cycle_s=2)
    assert (result.hits, result.bypassed_bytes, result.prefetch_bytes) == (1, 20, 0)
    assert simulate(trace, CacheConfig(100, never_cache=("f.(?)",))).hits == 1
    with pytest.raises(ConfigError, match="names"):
        simulate(small_trace((1, 0)), config)


def test_outcomes_are_told_per_access() -> None:
    trace = small_trace((1, 0), (150, 0), (260, 0), (261, 1), (262, 2))
    outcome = np.zeros(5, np.uint8)
    config = CacheConfig(20, 0.9, 1.0)
    simulate(trace, config, planner=Fixed(evict=[0]), cycle_s=200, outcome=outcome)
    assert outcome.tolist() == [0, HIT, REFETCHED, 0, BYPASSED]


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
