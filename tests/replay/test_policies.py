"""Policies against slow twins on random traces; names. What libCacheSim has too: test_exact.py."""

from __future__ import annotations

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from policy_oracle import ORACLES, Cache
from random_traces import traces

from features.common.errors import ConfigError
from replay.policies import run_policy
from replay.policies.policy import Policy
from replay.trace import Trace


def check(name: str, trace: Trace, capacity: int, oracle: Cache, policy: Policy | None = None) -> None:
    hits = oracle.serve()
    result = run_policy(name, trace, capacity, policy=policy)
    assert result.hits == sum(hits)
    assert result.hit_bytes == sum(
        trace.size_bytes[f] for f, hit in zip(trace.item, hits, strict=True) if hit
    )
    assert result.peak_usage_bytes == oracle.peak <= capacity


@pytest.mark.parametrize("name", ORACLES)
@cases(40, thorough=2000)
@given(traces(), st.integers(0, 120))
def test_a_policy_equals_its_slow_twin(name: str, trace: Trace, capacity: int) -> None:
    check(name, trace, capacity, ORACLES[name](trace, capacity))


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("seed", range(4))
def test_a_policy_equals_its_slow_twin_over_many_evictions(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    item = (60 * rng.random(1500) ** 2).astype(np.int32)
    size = rng.integers(1, (2, 8, 30, 100)[seed], 60)
    trace = Trace(np.arange(1500), item, size)
    capacity = int(size.sum() * (0.3, 0.5, 0.6, 0.4)[seed])
    check(name, trace, capacity, ORACLES[name](trace, capacity))


def test_the_name_of_the_result_is_the_canonical_one() -> None:
    trace = Trace(np.array([0]), np.array([0]), np.array([1]))
    assert run_policy("S3_FIFO", trace, 10).policy == "s3fifo"


def test_an_unknown_policy_is_named_with_the_known() -> None:
    trace = Trace(np.array([0]), np.array([0]), np.array([1]))
    with pytest.raises(ConfigError, match=r"fifo9.*lru.*clairvoyant-bypass"):
        run_policy("fifo9", trace, 10)
