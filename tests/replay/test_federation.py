"""Several caches: who holds what, and what the shared link lets through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xcache_oracle import brute_simulate, ids

from features.errors import ConfigError
from replay.config import CacheConfig
from replay.federation import Federation, simulate_federation
from replay.planner import Actions, CacheState
from replay.ranges import layout_of
from replay.trace import Trace

NAMES = [f"mc:file.{i}.root" for i in range(300)]
MOMENTS: dict[str, Any] = {"cycle_s": 900, "plan_from_s": 0, "count_from_s": 2000}


class Greedy:
    """Prefetches the same files at every boundary."""

    def __init__(self, *files: int) -> None:
        self.files = ids(files)

    def actions(self, state: CacheState) -> Actions:
        none = ids([])
        return Actions(self.files, none, none, none)


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
@given(st.integers(0, 10**6), st.booleans())
def test_each_cache_is_replayed_as_if_alone(seed: int, planned: bool) -> None:
    trace = make_trace(seed)
    federation = Federation({"small": CacheConfig(30), "large": CacheConfig(90, 0.5, 0.8, 60)})
    planners = {name: Greedy(1, 2, 3, 4) if planned else None for name in federation.caches}
    shares = simulate_federation(trace, federation, planners=planners.get, **MOMENTS)
    holder = layout_of({"small": 30, "large": 90}).owners_of(trace.names.to_pylist())
    server = holder[trace.item]
    total: dict[str, int] = {}
    for name, config in federation.caches.items():
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
            planner=planners[name],
            span=span,
            elsewhere=np.flatnonzero(holder != name).tolist(),
            **MOMENTS,
        )
        assert {key: getattr(shares.caches[name], key) for key in expect} == expect
        for key, value in expect.items():
            total[key] = total.get(key, 0) + value
    assert {key: getattr(shares.total, key) for key in total} == total
    assert shares.total.daily.wan_bytes.sum() == shares.total.wan_bytes
    assert shares.total.fill.used_bytes.max() <= shares.total.peak_usage_bytes


def read_once(*files: int) -> Trace:
    return Trace(ids([1, 900, 1800]), ids(files), np.full(10, 10), names=pa.array(NAMES[:10]))


@pytest.mark.parametrize(("limit", "brought"), [(None, 40), (0, 0), (1, 40), (5, 40)])
def test_the_link_limits_what_is_prefetched(limit: int | None, brought: Any) -> None:
    # 10 s cycles: at a boundary 10 x limit bytes less the demand of the cycle before may come.
    federation = Federation({"one": CacheConfig(1000)}, wan_bytes_per_s=limit)
    planners = {"one": Greedy(5, 6, 7, 8)}.get
    total = simulate_federation(read_once(0, 1, 2), federation, planners=planners, cycle_s=10).total
    assert total.prefetch_bytes == brought
    assert (total.prefetch_over_limit_bytes > 0) == (limit in (0, 1))


def test_the_common_limit_is_shared_by_capacity() -> None:
    caches = {"a": CacheConfig(1000), "b": CacheConfig(3000)}
    owners = layout_of({"a": 1, "b": 3}).owners_of(NAMES)
    last = {server: file for file, server in enumerate(owners)}
    trace = Trace(ids([5, 10]), ids([last["a"], last["b"]]), np.full(300, 10), names=pa.array(NAMES))
    everything = {name: Greedy(*range(3, 300)) for name in caches}.get

    def brought(**limits: Any) -> list[int]:
        shares = simulate_federation(
            trace, Federation(caches, **limits), planners=everything, cycle_s=10, plan_from_s=10
        )
        return [shares.caches[name].prefetch_bytes for name in sorted(shares.caches)]

    # No file is in both caches: the unread ones are brought once, and small caches fill up.
    assert sum(brought()) <= 10 * 300
    # One boundary: 400 B less the first read's 10; a quarter and three quarters of that, in files of 10 B.
    assert brought(wan_bytes_per_s=40) == [90, 290]


def test_what_cannot_be_shared_out_is_named() -> None:
    with pytest.raises(ConfigError, match="caches"):
        Federation({})
    nameless = Trace(ids([1]), ids([0]), ids([1]))
    with pytest.raises(ConfigError, match="no names"):
        simulate_federation(nameless, Federation({"a": CacheConfig(1), "b": CacheConfig(1)}))
