"""Policies and bound: against slow oracles on random traces, and the golden figures of a real trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from features.errors import ConfigError
from replay.bounds import byte_bound
from replay.policies import run_policy
from replay.trace import Trace

SHARED = Path(__file__).parents[2].parent / "shared" / "data"

# Object and byte miss ratio at 1, 5, 10, 20 % of the footprint; None: no figure.
CLOUDPHYSICS = {
    "lru": [(0.8338837, 0.9800275), (0.8228537, 0.9689885), (0.8096810, 0.9518164), (0.7332795, 0.8641825)],
    "belady": [
        (0.8004777, 0.9393003),
        (0.7234351, 0.8249635),
        (0.6512751, 0.7320235),
        (0.5736002, 0.6227398),
    ],
    "bound": [(None, 0.9391549), (None, 0.8248761), (None, 0.7319388), (None, 0.6226861)],
}


@pytest.fixture(scope="module")
def cloudphysics():
    rows = pd.read_csv(SHARED / "cloudphysics_io.csv.gz")
    code, blocks = pd.factorize(rows["lbn"])
    size = np.zeros(len(blocks), np.int64)
    size[code[::-1]] = rows["size"].to_numpy()[::-1]
    return Trace(np.arange(len(rows)), code, size)


@pytest.mark.parametrize("policy", CLOUDPHYSICS)
def test_golden_figures_of_cloudphysics(cloudphysics, policy):
    assert cloudphysics.footprint_bytes == 2_029_769_728
    for fraction, (objects, in_bytes) in zip((0.01, 0.05, 0.1, 0.2), CLOUDPHYSICS[policy], strict=True):
        capacity = int(fraction * cloudphysics.footprint_bytes)
        if policy == "bound":
            result = byte_bound(cloudphysics, capacity)
        else:
            result = run_policy(policy, cloudphysics, capacity)
            assert result.peak_usage_bytes <= capacity
        assert 1 - result.byte_hit_ratio == pytest.approx(in_bytes, abs=1e-6)
        if objects is not None:
            assert 1 - result.hit_ratio == pytest.approx(objects, abs=1e-6)


@st.composite
def traces(draw, max_accesses=60):
    m = draw(st.integers(1, 10))
    items = draw(st.lists(st.integers(0, m - 1), min_size=1, max_size=max_accesses))
    sizes = draw(st.lists(st.integers(0, 20), min_size=m, max_size=m))
    return Trace(np.arange(len(items)), np.array(items), np.array(sizes))


def brute_hits(trace, capacity, choose):
    """Hits of a cache that asks `choose(files, now, newcomer)` for a victim (the newcomer: bypass)."""
    last, resident, hits = {}, [], []
    for now, file in enumerate(trace.item.tolist()):
        hits.append(file in resident)
        last[file] = now
        size = int(trace.size_bytes[file])
        if file in resident or size > capacity:
            continue
        while sum(trace.size_bytes[f] for f in resident) + size > capacity:
            victim = choose(resident, last, now, file)
            if victim == file:
                break
            resident.remove(victim)
        else:
            resident.append(file)
    return hits


def next_use(trace, file, now):
    later = [i for i in range(now + 1, trace.n_accesses) if trace.item[i] == file]
    return later[0] if later else trace.n_accesses


@settings(max_examples=200, deadline=None)
@given(traces(), st.integers(0, 60))
def test_lru_equals_a_brute_force(trace, capacity):
    hits = brute_hits(trace, capacity, lambda files, last, now, file: min(files, key=last.__getitem__))
    result = run_policy("lru", trace, capacity)
    assert result.hits == sum(hits)
    assert result.hit_bytes == sum(trace.size_bytes[trace.item[i]] for i, hit in enumerate(hits) if hit)


@settings(max_examples=200, deadline=None)
@given(traces(), st.integers(0, 60), st.booleans())
def test_the_clairvoyants_equal_a_brute_force(trace, capacity, bypass):
    def choose(files, last, now, newcomer):
        # On a tie between files never read again it does not matter which one goes.
        return max([newcomer, *files] if bypass else files, key=lambda f: next_use(trace, f, now))

    hits = brute_hits(trace, capacity, choose)
    result = run_policy("clairvoyant" if bypass else "belady", trace, capacity)
    assert result.hits == sum(hits)


@settings(max_examples=60, deadline=None)
@given(traces(max_accesses=25), st.integers(0, 60))
def test_the_bound_solves_the_linear_program(trace, capacity):
    n = trace.n_accesses
    spans = [(i, next_use(trace, f, i), int(trace.size_bytes[f])) for i, f in enumerate(trace.item)]
    spans = [span for span in spans if span[1] < n]
    result = byte_bound(trace, capacity)
    if not spans:
        assert result.hit_bytes == 0
        return
    # Bytes kept of each reuse interval: at no time more than the capacity in all.
    covers = np.array([[start <= t < end for start, end, _ in spans] for t in range(n)], float)
    best = linprog(
        -np.ones(len(spans)), A_ub=covers, b_ub=np.full(n, capacity), bounds=[(0, s) for *_, s in spans]
    )
    assert result.hit_bytes == pytest.approx(-best.fun, abs=1e-6)


@settings(max_examples=200, deadline=None)
@given(traces(), st.integers(0, 60), st.integers(0, 59))
def test_a_windowed_bound_is_below_every_full_one(trace, capacity, start):
    start = min(start, trace.n_accesses - 1)
    windowed = byte_bound(trace, capacity, count_from_s=start)
    clairvoyant = run_policy("clairvoyant", trace, capacity, count_from_s=start)
    assert windowed.requests == clairvoyant.requests == trace.n_accesses - start
    assert windowed.wan_bytes <= clairvoyant.wan_bytes


def test_an_unknown_policy_is_named_with_the_known():
    trace = Trace(np.array([0]), np.array([0]), np.array([1]))
    with pytest.raises(ConfigError, match=r"fifo9.*lru"):
        run_policy("fifo9", trace, 10)
