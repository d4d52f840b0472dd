"""Reactive prefetch: what is fetched when a dataset begins to be read, and how it is charged."""

from __future__ import annotations

import numpy as np
import pytest
from ladders import one_split

from features.stream.state import Files
from replay.access_context import AccessContext
from replay.kernels.trees import HorizonModels
from replay.policies import run_policy
from replay.policies.learned import Order
from replay.policies.policy import Prefetched
from replay.result import Result
from replay.steward import new_order
from replay.steward.delayed_cache import NO_DELAY, Delays
from replay.steward.learned import LearnedOrder
from replay.steward.policies import Replayed
from replay.steward.reactive_prefetch import Fetching, FetchingSteward
from replay.trace import Trace

HOUR_S, DAY_S = 3600, 86400
SURE = one_split("dataset_recency_s", 900.0, 9.0, -9.0)
"""Files of a dataset that is being read are read."""
NEVER = one_split("n_reads", 0.0, -9.0, -9.0)
ANY = Fetching(0.9, share=100.0)


def steward(
    ladder: HorizonModels = SURE,
    fetching: Fetching = ANY,
    *,
    n_files: int = 6,
    from_s: float = 0.0,
) -> FetchingSteward:
    """Files of 10 bytes, three of dataset 0, the others of 1; all were read, the last is on disk."""
    kept = FetchingSteward(LearnedOrder([Order(from_s, ladder)]), capacity_bytes=1000, fetching=fetching)
    for file in range(n_files):
        kept.add(0 if file < 3 else 1, 0, 10)
    for file in range(n_files):
        read(kept, file, 100.0 * file)
    for file in range(n_files - 1):
        kept.removed(file)
    assert kept.fetches(DAY_S) == []
    return kept


def read(kept: FetchingSteward, file: int, at_s: float) -> None:
    kept.read(file, 0, at_s)
    kept.stored(file, 10, at_s)


def test_the_rest_of_a_dataset_comes_when_it_is_read() -> None:
    kept = steward()
    read(kept, 0, 2 * DAY_S)
    assert sorted(kept.fetches(2 * DAY_S + 1)) == [1, 2]
    assert kept.fetches(2 * DAY_S + 90) == []


def test_nothing_unlikely_comes() -> None:
    kept = steward(NEVER)
    read(kept, 0, 2 * DAY_S)
    assert kept.fetches(2 * DAY_S + 1) == []


def test_a_dataset_is_asked_about_once_a_minute() -> None:
    kept = steward()
    read(kept, 0, 2 * DAY_S)
    for file in kept.fetches(2 * DAY_S + 1):
        kept.given_up(file)
    read(kept, 0, 2 * DAY_S + 10)
    assert kept.fetches(2 * DAY_S + 11) == []
    assert sorted(kept.fetches(2 * DAY_S + 62)) == [1, 2]


def test_files_never_read_and_those_that_a_plan_evicts_stay_away() -> None:
    kept = steward()
    kept.add(0, 0, 10)
    kept.evict_first([1])
    read(kept, 0, 2 * DAY_S)
    assert kept.fetches(2 * DAY_S + 1) == [2]


def test_no_more_comes_than_the_limit_allows() -> None:
    """A miss of 10 bytes allows 10 more."""
    kept = steward(fetching=Fetching(0.9, share=1.0))
    read(kept, 0, 4 * DAY_S)
    assert len(kept.fetches(4 * DAY_S + 1)) == 1


def test_nothing_comes_before_the_first_order() -> None:
    kept = steward(from_s=3.0 * DAY_S)
    read(kept, 0, 2 * DAY_S)
    assert kept.fetches(2 * DAY_S + 1) == []
    read(kept, 1, 4 * DAY_S)
    assert kept.fetches(4 * DAY_S + 1) == [2]


def test_a_file_that_a_job_brought_may_be_fetched_again_later() -> None:
    kept = steward()
    read(kept, 0, 2 * DAY_S)
    assert sorted(kept.fetches(2 * DAY_S + 1)) == [1, 2]
    read(kept, 1, 2 * DAY_S + 2)
    kept.removed(1)
    read(kept, 0, 2 * DAY_S + 100)
    assert kept.fetches(2 * DAY_S + 101) == [1]


def twice(*, pace_s: int, n: int = 4) -> tuple[Trace, AccessContext]:
    """A dataset of `n` files, 10 bytes each, is read, then two large ones, and the first again."""
    files = np.arange(n)
    times = np.concatenate([files * pace_s, [DAY_S, DAY_S + HOUR_S], 2 * DAY_S + files * pace_s])
    item = np.concatenate([files, [n, n + 1], files]).astype(np.int32)
    trace = Trace(times, item, np.array([10] * n + [100, 60]))
    dataset = np.array([0] * n + [1, 1], np.int32)
    unknown = np.full(n + 2, -1, np.int32)
    told = Files(dataset, np.zeros(n + 2, np.int32), trace.size_bytes, unknown, np.zeros(2, np.int64), np.inf)
    return trace, AccessContext(told, 2, np.zeros(times.size, np.int64))


def outcome(delays: Delays, fetching: Fetching | None = ANY, *, pace_s: int = 600) -> Result:
    """Of the second time; a large file has pushed out the dataset, and another one that file."""
    trace, context = twice(pace_s=pace_s)
    order = lambda n_bytes: new_order("learned", n_bytes, [Order(0.0, SURE)])  # noqa: E731
    policy = Replayed(context, order, delays, fetching)
    return run_policy("steward", trace, 100, count_from_s=2 * DAY_S, policy=policy)


def test_what_is_fetched_ahead_is_charged_and_hit() -> None:
    plain, ahead = outcome(NO_DELAY, None), outcome(NO_DELAY)
    assert (plain.hits, plain.wan_bytes, plain.prefetch_bytes) == (0, 40, 0)
    assert (ahead.hits, ahead.wan_bytes, ahead.prefetch_bytes) == (3, 40, 30)
    assert (ahead.prefetch_precision, ahead.wasted_bytes) == (1.0, 0)
    assert ahead.peak_hour_wan_bytes == 40


@pytest.mark.parametrize(("pace_s", "n_hits"), [(10, 0), (70, 2), (600, 3)])
def test_a_file_that_comes_too_late_is_a_miss_and_charged_once(pace_s: int, n_hits: int) -> None:
    ahead = outcome(Delays(fetch_s=100), pace_s=pace_s)
    assert ahead.hits == n_hits
    assert ahead.wan_bytes == 40


def test_before_the_count_only_what_is_unread_then_is_charged() -> None:
    came = Prefetched(
        np.array([10, 20, 30, 140]),
        np.array([1, 2, 4, 8]),
        np.array([50, 120, 2**63 - 1, 150]),
        np.array([True, True, False, False]),
    )
    placed = came.placed(100)
    assert placed.time_s.tolist() == [100, 100, 140]
    assert placed.prefetch_bytes.tolist() == [2, 4, 8]
    assert (placed.prefetch_read_bytes, placed.wasted_bytes) == (2, 12)
