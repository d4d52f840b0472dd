"""Equal to libCacheSim: live on a real trace and on random ones, by its recorded figures on zipf10m."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from libcachesim_oracle import JUDGED, judge, write_lcs
from zipf10m import zipf10m

from replay.bounds import byte_bound, object_bound
from replay.policies import POLICIES, run_policy
from replay.trace import Trace

FRACTIONS = (0.01, 0.05, 0.10, 0.20)
SAME = 1e-9
# Made by: python bench/replay.py --golden tests/golden/libcachesim/zipf10m.csv
GOLDEN = Path(__file__).parents[1] / "golden" / "libcachesim" / "zipf10m.csv"

# Byte miss ratio of the byte bound on the real trace, and both bounds' ratios on zipf10m at 5 %.
REAL_BYTE_BOUND = (0.9391549, 0.8248761, 0.7319388, 0.6226861)
ZIPF_BYTE_BOUND, ZIPF_OBJECT_BOUND, ZIPF_BYPASS = 0.2821560, 0.2325187, (0.2926086, 0.2821583)


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


@pytest.fixture(scope="module")
def zipf() -> Trace:
    return zipf10m()


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
        verdict = judge(policy, tmp_path / "random.lcs", capacity, hashpower=12)
        assert verdict[:2] == ratios(run_policy(policy, trace, capacity)), policy


def test_equal_to_the_recorded_figures(zipf: Trace) -> None:
    assert (zipf.n_accesses, zipf.footprint_bytes) == (10_000_000, 663_298_131_593_602)
    capacity = int(0.05 * zipf.footprint_bytes)
    with GOLDEN.open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["capacity_bytes"]) == capacity]
    assert [row["policy"] for row in rows] == list(JUDGED)
    for row in rows:
        recorded = float(row["object_miss_ratio"]), float(row["byte_miss_ratio"])
        assert recorded == ratios(run_policy(row["policy"], zipf, capacity)), row["policy"]


def test_figures_beyond_libcachesim(zipf: Trace) -> None:
    capacity = int(0.05 * zipf.footprint_bytes)
    bypass = run_policy("clairvoyant-bypass", zipf, capacity)
    assert (bypass.object_miss_ratio, bypass.byte_miss_ratio) == pytest.approx(ZIPF_BYPASS, abs=1e-7)
    assert byte_bound(zipf, capacity).byte_miss_ratio == pytest.approx(ZIPF_BYTE_BOUND, abs=1e-7)
    assert object_bound(zipf, capacity).object_miss_ratio == pytest.approx(ZIPF_OBJECT_BOUND, abs=1e-7)


def test_figures_of_the_byte_bound_on_a_real_trace(cloudphysics: Trace) -> None:
    for fraction, expected in zip(FRACTIONS, REAL_BYTE_BOUND, strict=True):
        bound = byte_bound(cloudphysics, int(fraction * cloudphysics.footprint_bytes))
        assert bound.byte_miss_ratio == pytest.approx(expected, abs=1e-7)


def test_no_policy_beats_a_bound_on_a_real_trace(cloudphysics: Trace) -> None:
    capacity = int(0.05 * cloudphysics.footprint_bytes)
    in_bytes, objects = byte_bound(cloudphysics, capacity), object_bound(cloudphysics, capacity)
    for policy in POLICIES:
        result = run_policy(policy, cloudphysics, capacity)
        assert result.wan_bytes >= in_bytes.wan_bytes, policy
        assert result.hits <= objects.hits, policy
