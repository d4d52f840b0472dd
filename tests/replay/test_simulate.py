"""One cache, one rule at a time: what a replay counts, in traces small enough to follow by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from features.errors import ConfigError, InputError
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


@pytest.mark.parametrize(("pins", "lost"), [([], 0), ([0], 1), ([0, 1], 2), (list(range(10)), 9)])
def test_a_pin_makes_a_file_young_and_protects_no_further(pins: Any, lost: Any) -> None:
    # 10 files of 10 B fill all of 100 B. The check at 1200 s spares what was asked for since 900 s, that at
    # 1500 s takes one, the longest unused.
    config = CacheConfig(100, 0.9, 0.95, 300)
    for file in range(10):
        trace = small_trace(*((950 + t, t) for t in range(10)), (1700, file))
        result = simulate(trace, config, planner=Fixed(pin=pins), cycle_s=1000)
        assert result.hits == (file != lost)


def test_a_pin_is_renewed_at_every_boundary_until_it_is_taken_back() -> None:
    reads = [(0, 0), *((100 * i + 50, 1 + i % 9) for i in range(9)), (999, 0)]
    config = CacheConfig(50, 0.6, 0.9, 100)
    assert simulate(small_trace(*reads), config, cycle_s=100).hits == 0
    assert simulate(small_trace(*reads), config, planner=Fixed(pin=[0]), cycle_s=100, plan_from_s=1).hits == 1


def test_a_file_that_does_not_fit_is_read_past_the_cache() -> None:
    result = simulate(small_trace((1, 0), (2, 1), (3, 2), (4, 0), (5, 2)), CacheConfig(20, 0.9, 1.0))
    assert (result.hits, result.bypassed_bytes, result.wan_bytes) == (1, 20, 40)


def test_an_evicted_file_that_returns_is_counted_once() -> None:
    reads = [(1, 0), (150, 0), (151, 0), (260, 3)]
    result = simulate(small_trace(*reads), CacheConfig(100), planner=Fixed(evict=[0]), cycle_s=100)
    assert (result.refetch_bytes, result.wan_bytes, result.hits) == (10, 30, 1)


def test_prefetched_bytes_are_charged_and_judged() -> None:
    reads = [(1, 0), (150, 7), (260, 3)]
    planner = Fixed(prefetch=[7, 8, 0, 7])
    result = simulate(small_trace(*reads), CacheConfig(100), planner=planner, cycle_s=100)
    assert (result.prefetch_bytes, result.prefetch_read_bytes, result.wasted_bytes) == (20, 10, 10)
    assert (result.wan_bytes, result.prefetch_precision) == (40, 0.5)


def test_what_was_prefetched_before_the_window_is_paid_in_it() -> None:
    reads = [(1, 0), (150, 0), (260, 7)]
    planner = Fixed(prefetch=[7])
    result = simulate(small_trace(*reads), CacheConfig(100), planner=planner, cycle_s=100, count_from_s=200)
    assert (result.requests, result.hits, result.wan_bytes, result.prefetch_bytes) == (1, 1, 10, 10)


def test_days_of_the_window_are_listed_without_gaps() -> None:
    day = 86400
    result = simulate(small_trace((5, 0), (day + 5, 0), (3 * day + 5, 1)), CacheConfig(100), count_from_s=day)
    assert result.daily.day.tolist() == [1, 2, 3]
    assert result.daily.hits.tolist() == [1, 0, 0]
    assert result.daily.misses.tolist() == [0, 0, 1]
    assert result.daily.wan_bytes.tolist() == [0, 0, 10]


def test_what_was_asked_for_since_the_last_check_is_spared() -> None:
    reads = [*((t, t) for t in range(10)), (350, 0), (400, 10)]
    config = CacheConfig(100, 0.1, 0.9, 300)
    # At 300 s nothing may go, so the last read finds no room; at 600 s all but 0 goes.
    result = simulate(small_trace(*reads, *((700 + t, t) for t in range(10))), config)
    assert (result.hits, result.bypassed_bytes) == (2, 10)


def opened(*reads: tuple[int, int, int]) -> Trace:
    """Reads (open, close, item) of files of 10 bytes."""
    trace = small_trace(*((start, item) for start, _, item in reads))
    return dataclasses.replace(trace, close_s=ids([close for _, close, _ in reads]))


def test_an_open_file_is_not_purged() -> None:
    # The check at 200 s takes 0, or if that is open still 1, the next oldest.
    for close, kept in ((0, [1]), (200, [0]), (9000, [0])):
        reads = [(0, close, 0), *((t, t, t) for t in range(1, 10))]
        hits = [
            simulate(opened(*reads, (400, 400, file)), CacheConfig(100, 0.9, 0.95, 100)).hits
            for file in (0, 1)
        ]
        assert [file for file in (0, 1) if hits[file]] == kept


def test_files_age_from_their_last_close() -> None:
    # 0 is opened first and closed last: it is the youngest at the check, 1 the oldest.
    reads = [(0, 150, 0), *((t, t, t) for t in range(1, 10))]
    config = CacheConfig(100, 0.3, 0.95, 100)
    assert simulate(opened(*reads, (400, 400, 0)), config).hits == 1
    assert simulate(opened(*reads, (400, 400, 7)), config).hits == 0


def test_a_purge_that_finds_its_candidates_open_falls_short() -> None:
    # 70 B must go, so the oldest 140 B are looked at: all 100 B. If 9 of 10 are open only one can go.
    reads = [(t, 9000, t) for t in range(9)] + [(9, 9, 9)]
    result = simulate(opened(*reads, (400, 400, 9), (401, 401, 10)), CacheConfig(100, 0.3, 0.95, 100))
    assert (result.hits, result.wan_bytes, result.bypassed_bytes) == (0, 120, 10)
    # 2 B must go: of 4 B to look at the oldest file is all, and it is open; nothing goes.
    stuck = simulate(opened(*reads, (400, 400, 9)), CacheConfig(100, 0.98, 0.99, 100))
    assert stuck.hits == 1


def test_cold_files_go_at_their_turn() -> None:
    reads = [(0, 0), (250, 1), (1100, 0), (1101, 1)]
    assert simulate(small_trace(*reads), CacheConfig(100, cold_age_s=800)).hits == 1
    assert simulate(small_trace(*reads), CacheConfig(100, cold_age_s=800, cold_every=4)).hits == 2


def test_only_the_blocks_that_are_read_are_fetched() -> None:
    trace = small_trace((1, 0), (2, 0), (3, 0), (4, 0))
    trace = dataclasses.replace(trace, read_bytes=ids([3, 4, 5, 10]))
    result = simulate(trace, CacheConfig(100, block_bytes=4))
    # 4 B for the first, none for the second, 4 more for the third, the last 2 for the fourth.
    assert (result.wan_bytes, result.hits, result.hit_bytes) == (10, 1, 4 + 4 + 8)
    assert (result.bytes_requested, result.peak_usage_bytes) == (22, 10)
    # Reads of unknown length are of whole files.
    assert simulate(small_trace((1, 0), (2, 0)), CacheConfig(100, block_bytes=4)).wan_bytes == 10


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


def test_the_ssd_serves_what_was_read_last() -> None:
    reads = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 0), (6, 1)]
    result = simulate(small_trace(*reads), CacheConfig(100, ssd_bytes=20))
    # 2 is on the SSD when it is read again; 0 and 1 had moved off it.
    assert (result.hits, result.hit_bytes, result.ssd_hit_bytes) == (3, 30, 10)


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


def test_results_are_frozen() -> None:
    result = simulate(small_trace((1, 0)), CacheConfig(100))
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.hits = 7  # type: ignore[misc]
