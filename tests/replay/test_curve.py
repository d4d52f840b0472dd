"""The curve equals a replay of LRU at every capacity, and a slow stack distance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from random_traces import traces

from features.common.errors import InputError
from replay.curve import lru_curve
from replay.policies import run_policy
from replay.trace import Trace


def distances(trace: Trace) -> Iterator[tuple[int, int]]:
    """(index, bytes of the distinct files read since the last access, the file's own included)."""
    items = trace.item.tolist()
    for i, item in enumerate(items):
        if item in items[:i]:
            last = max(j for j in range(i) if items[j] == item)
            yield i, sum(int(trace.size_bytes[f]) for f in set(items[last:i]))


@cases(100, thorough=3000)
@given(traces(80, 9), st.integers(0, 79))
def test_it_is_the_stack_distances_sorted(trace: Trace, start: int) -> None:
    start = min(start, trace.n_accesses - 1)
    curve = lru_curve(trace, count_from_s=start)
    reads = [(d, int(trace.size_bytes[trace.item[i]])) for i, d in distances(trace) if i >= start]
    assert curve.capacity_bytes.tolist() == sorted({d for d, _ in reads})
    for capacity, hits, hit_bytes in zip(curve.capacity_bytes, curve.hits, curve.hit_bytes, strict=True):
        assert hits == sum(d <= capacity for d, _ in reads)
        assert hit_bytes == sum(size for d, size in reads if d <= capacity)
    assert curve.requests == trace.n_accesses - start


@cases(60, thorough=2000)
@given(traces(80, 9))
def test_it_is_a_replay_at_every_capacity_from_the_largest_file_on(trace: Trace) -> None:
    curve = lru_curve(trace)
    assert curve.exact_from_bytes == trace.size_bytes[trace.item].max()
    for capacity in range(curve.exact_from_bytes, trace.footprint_bytes + 2):
        result = run_policy("lru", trace, capacity)
        assert curve.hit_ratio_at(capacity) == result.hit_ratio
        assert curve.byte_hit_ratio_at(capacity) == result.byte_hit_ratio


@cases(60, thorough=2000)
@given(traces(80, 9), st.floats(0, 1))
def test_a_needed_capacity_is_the_least_one(trace: Trace, ratio: float) -> None:
    curve = lru_curve(trace)
    for key, at in (("hit_ratio", curve.hit_ratio_at), ("byte_hit_ratio", curve.byte_hit_ratio_at)):
        capacity = curve.capacity_for(**{key: ratio})
        if capacity is None:
            assert at(2 * trace.footprint_bytes) < ratio
        elif capacity:
            assert at(capacity) >= ratio
            assert capacity == curve.exact_from_bytes or at(capacity - 1) < ratio


def test_ratios_that_floats_round_are_found_exactly() -> None:
    curve = lru_curve(Trace(np.arange(100), np.zeros(100, np.int64), np.array([5])))
    for hits in range(1, 100):
        assert curve.capacity_for(hit_ratio=hits / 100) == 5
    assert curve.capacity_for(hit_ratio=1) is None
    assert curve.capacity_for(hit_ratio=0.5, byte_hit_ratio=1) is None


def test_doubling_adds_what_lies_between() -> None:
    item = np.array([0, 1, 2, 0, 1, 2, 2])
    curve = lru_curve(Trace(np.arange(7), item.astype(np.int32), np.array([1, 1, 2])))
    assert curve.capacity_bytes.tolist() == [2, 4]
    assert curve.doubling_adds(2) == pytest.approx((3 / 7, 4 / 10))


def test_a_trace_read_once_has_no_hit_at_any_capacity() -> None:
    curve = lru_curve(Trace(np.arange(3), np.arange(3, dtype=np.int32), np.ones(3, np.int64)))
    assert curve.hit_ratio_at(100) == 0
    assert curve.capacity_for(hit_ratio=0.1) is None
    with pytest.raises(InputError, match="after the last access"):
        lru_curve(Trace(np.arange(3), np.arange(3, dtype=np.int32), np.ones(3, np.int64)), count_from_s=9)


def test_renumbering_slots_many_times_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    item = rng.integers(0, 30, 20_000, dtype=np.int32)
    trace = Trace(np.arange(item.size), item, rng.integers(1, 100, 30))
    curve = lru_curve(trace)
    for capacity in range(curve.exact_from_bytes, trace.footprint_bytes, 97):
        assert curve.hit_ratio_at(capacity) == run_policy("lru", trace, capacity).hit_ratio
