"""Policies against slow twins, and against libCacheSim; on 10 M reads: bench/replay_speed.py --exact."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from libcachesim_oracle import JUDGED, judge, write_lcs
from policy_oracle import ORACLES, Cache
from random_traces import traces

from features.common.errors import ConfigError
from replay.policies import POLICIES, run_policy
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


FRACTIONS = (0.01, 0.20)
SAME = 1e-9


@pytest.fixture(scope="module")
def cloudphysics(shared: Callable[[str], Path]) -> Trace:
    rows = pd.read_csv(shared("data/cloudphysics_io.csv.gz"))
    code, blocks = pd.factorize(rows["lbn"])
    size = np.zeros(len(blocks), np.int64)
    size[code[::-1]] = rows["size"].to_numpy()[::-1]
    trace = Trace(np.arange(len(rows)), code.astype(np.int32), size)
    assert (trace.n_accesses, trace.footprint_bytes) == (113_872, 2_029_769_728)
    return trace


@pytest.fixture(scope="module")
def cloudphysics_lcs(cloudphysics: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lcs") / "cloudphysics.lcs"
    write_lcs(cloudphysics, path)
    return path


def ratios(result: Any) -> Any:
    return pytest.approx((result.object_miss_ratio, result.byte_miss_ratio), abs=SAME, rel=0)


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("policy", JUDGED)
def test_equal_on_a_real_trace(
    cloudphysics: Trace, cloudphysics_lcs: Path, policy: str, fraction: float
) -> None:
    capacity = int(fraction * cloudphysics.footprint_bytes)
    verdict = judge(policy, cloudphysics_lcs, capacity, hashpower=18)
    assert verdict[:2] == ratios(run_policy(policy, cloudphysics, capacity))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 200), st.floats(0, 1))
def test_equal_on_random_traces(tmp_path: Path, seed: int, m: int, largest: int, fraction: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 400))
    size = rng.integers(1, largest + 1, m)
    trace = Trace(np.arange(n), (m * rng.random(n) ** 2).astype(np.int64), size)
    # Its S3-FIFO ends the process if the small queue has no byte.
    capacity = 20 + int(fraction * size.sum())
    write_lcs(trace, tmp_path / "random.lcs")
    for policy in JUDGED:
        verdict, ours = (
            judge(policy, tmp_path / "random.lcs", capacity, hashpower=12),
            run_policy(policy, trace, capacity),
        )
        assert verdict[:2] == ratios(ours), policy
        assert ours.peak_usage_bytes <= capacity, policy


def test_every_policy_has_a_judge() -> None:
    assert set(JUDGED) | set(ORACLES) == set(POLICIES)
