"""Several caches: who holds what."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xcache_oracle import brute_simulate, ids

from features.common.errors import ConfigError
from replay.config import CacheConfig
from replay.federation import simulate_federation
from replay.ranges import layout_of
from replay.trace import Trace

NAMES = [f"mc:file.{i}.root" for i in range(300)]
COUNT_FROM_S = 2000


def make_trace(seed: int, n: int = 400, m: int = 30) -> Trace:
    rng = np.random.default_rng(seed)
    time_s = np.sort(rng.integers(0, 40_000, n))
    return Trace(
        time_s,
        rng.integers(0, m, n, dtype=np.int32),
        rng.integers(0, 20, m),
        names=pa.array(NAMES[:m]),
        close_s=time_s + rng.integers(0, 3000, n),
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_each_cache_is_replayed_as_if_alone(seed: int) -> None:
    trace = make_trace(seed)
    federation = {"small": CacheConfig(30), "large": CacheConfig(90, 0.5, 0.8, 60)}
    shares = simulate_federation(trace, federation, count_from_s=COUNT_FROM_S)
    holder = layout_of({"small": 30, "large": 90}).owners_of(trace.names.to_pylist())
    server = holder[trace.item]
    total: dict[str, int] = {}
    for name, config in federation.items():
        here = server == name
        part = Trace(
            trace.time_s[here],
            trace.item[here],
            trace.size_bytes,
            names=trace.names,
            close_s=trace.close_s[here],
        )
        span = (int(trace.time_s[0]), int(trace.time_s[-1]))
        expect, _ = brute_simulate(
            part,
            config,
            planner=None,
            cycle_s=900,
            plan_from_s=0,
            span=span,
            elsewhere=np.flatnonzero(holder != name).tolist(),
            count_from_s=COUNT_FROM_S,
        )
        assert {key: getattr(shares.caches[name], key) for key in expect} == expect
        for key, value in expect.items():
            total[key] = total.get(key, 0) + value
    assert {key: getattr(shares.total, key) for key in total} == total
    assert shares.total.daily.wan_bytes.sum() == shares.total.wan_bytes
    assert shares.total.fill.used_bytes.max() <= shares.total.peak_usage_bytes


def test_what_cannot_be_shared_out_is_named() -> None:
    with pytest.raises(ConfigError, match="caches"):
        simulate_federation(Trace(ids([1]), ids([0]), ids([1])), {})
    nameless = Trace(ids([1]), ids([0]), ids([1]))
    with pytest.raises(ConfigError, match="no names"):
        simulate_federation(nameless, {"a": CacheConfig(1), "b": CacheConfig(1)})
