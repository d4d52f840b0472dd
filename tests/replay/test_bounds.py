"""Bounds, against a solver of linear programs; the curve of LRU, against replays and slow stack distances."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from policy_oracle import Cache
from random_traces import traces
from scipy.optimize import linprog

from features.common.errors import InputError
from replay.bounds import byte_bound, object_bound
from replay.curve import Curve, lru_curve
from replay.policies import POLICIES, run_policy
from replay.trace import Trace


def spans(trace: Trace) -> list[tuple[int, int, int]]:
    """(access, next access, size) of every access that has a next one."""
    cache = Cache(trace, 0)
    held_spans = []
    for cache.now, file in enumerate(trace.item.tolist()):
        step = cache.next_use(file)
        if step != math.inf:
            held_spans.append((cache.now, cache.now + 1 + int(step), cache.size(file)))
    return held_spans


def best_kept(trace: Trace, capacity: int, held: list[tuple[int, int, int]], worth: Any) -> float:
    """The most worth of what is kept of each span: at no time more than the capacity in all."""
    covers = np.array([[size * (a <= t < b) for a, b, size in held] for t in range(trace.n_accesses)], float)
    answer = linprog(
        -np.array(worth, float), A_ub=covers, b_ub=np.full(trace.n_accesses, capacity), bounds=(0, 1)
    )
    return -answer.fun


@cases(40, thorough=1000)
@given(traces(max_accesses=25), st.integers(0, 60))
def test_the_byte_bound_solves_the_linear_program(trace: Trace, capacity: int) -> None:
    intervals = spans(trace)
    # A file of 0 bytes is always there in full, which moves no byte.
    best = best_kept(trace, capacity, intervals, [size for *_, size in intervals]) if intervals else 0
    assert byte_bound(trace, capacity).hit_bytes == pytest.approx(best, abs=1e-6)


@cases(60, thorough=2000)
@given(traces(), st.integers(0, 60))
def test_the_object_bound_takes_the_cheapest(trace: Trace, capacity: int) -> None:
    costs = sorted(size * (b - a) for a, b, size in spans(trace) if size <= capacity)
    room, hits = Fraction(capacity * trace.n_accesses), 0
    while hits < len(costs) and costs[hits] <= room:
        room -= costs[hits]
        hits += 1
    assert object_bound(trace, capacity).hits == hits


def test_costs_beyond_64_bits_are_ordered() -> None:
    # A petabyte file kept over 20 000 accesses is more than an int64 holds.
    item = np.concatenate([[0], np.repeat([1, 2], 10_000), [0]])
    trace = Trace(np.arange(item.size), item, np.array([10**15, 1, 1]))
    assert object_bound(trace, 10**15).hits == 2 * 9_999 + 1
    assert object_bound(trace, 10**15 - 1).hits == 2 * 9_999


@pytest.mark.parametrize("name", POLICIES)
@cases(30, thorough=1000)
@given(traces(), st.integers(0, 60), st.integers(0, 59))
def test_no_policy_beats_a_bound(name: str, trace: Trace, capacity: int, start: int) -> None:
    start = min(start, trace.n_accesses - 1)
    for count_from_s in (None, start):
        result = run_policy(name, trace, capacity, count_from_s=count_from_s)
        in_bytes = byte_bound(trace, capacity, count_from_s=count_from_s)
        objects = object_bound(trace, capacity, count_from_s=count_from_s)
        assert result.requests == in_bytes.requests == objects.requests
        assert in_bytes.wan_bytes <= result.wan_bytes
        assert in_bytes.peak_usage_bytes <= capacity
        assert objects.hits >= result.hits


@cases(40, thorough=1000)
@given(traces(), st.integers(0, 60), st.integers(0, 59))
def test_a_longer_past_gives_no_fewer_hits(trace: Trace, capacity: int, start: int) -> None:
    # What the window's bound may hold at its start is at least what the whole trace's bound can.
    start = min(start, trace.n_accesses - 1)
    alone = Trace(trace.time_s[start:], trace.item[start:], trace.size_bytes)
    warm, cold = byte_bound(trace, capacity, count_from_s=start), byte_bound(alone, capacity)
    assert warm.hit_bytes >= cold.hit_bytes
    warm, cold = object_bound(trace, capacity, count_from_s=start), object_bound(alone, capacity)
    assert warm.hits >= cold.hits


@pytest.mark.parametrize("bound", [byte_bound, object_bound])
def test_an_empty_window_is_refused(bound: Callable[..., Any]) -> None:
    with pytest.raises(
        InputError, match="1970-01-01T00:00:06Z, from which accesses count, is after the last access"
    ):
        bound(Trace(np.array([5]), np.array([0]), np.array([1])), 10, count_from_s=6)


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
    petabytes = Curve(np.array([5]), np.array([1]), np.array([10**17 // 3 + 7]), 2, 10**17, 5)
    assert petabytes.capacity_for(byte_hit_ratio=petabytes.byte_hit_ratio_at(5)) == 5
    assert curve.capacity_for(hit_ratio=1) is None
    assert curve.capacity_for(hit_ratio=0.5, byte_hit_ratio=1) is None
