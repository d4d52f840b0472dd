"""Side-by-side rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from features.errors import ConfigError
from replay.compare import compare
from replay.config import CacheConfig
from replay.planner import Actions, CacheState
from replay.policies import run_policy
from replay.result import byte_gap_closed
from replay.trace import Trace


class Idle:
    def actions(self, state: CacheState) -> Actions:
        none = np.zeros(0, np.int64)
        return Actions(none, none, none, none)


@pytest.fixture(scope="module")
def trace() -> Trace:
    rng = np.random.default_rng(3)
    item = (200 * rng.random(5000) ** 2).astype(np.int32)
    return Trace(np.sort(rng.integers(0, 10 * 86400, 5000)), item, rng.integers(1, 1000, 200))


def test_rows_come_by_capacity_and_policy(trace: Trace) -> None:
    done = []
    rows = compare(
        trace,
        [5000, 20000],
        policies=["clairvoyant", "lru+plan", "lru"],
        xcache=CacheConfig(1),
        planner=Idle(),
        count_from_s=2 * 86400,
        on_done=lambda *told: done.append(told),
    )
    names = [(row.capacity_bytes, row.policy) for row in rows]
    policies = ("clairvoyant", "lru+plan", "lru", "bound")
    assert names == [(size, policy) for size in (5000, 20000) for policy in policies]
    assert [told[:2] for told in done] == [(i, 10) for i in range(1, 11)]
    wan = {name: row.result.wan_bytes for name, row in zip(names, rows, strict=True)}
    assert wan[5000, "bound"] <= wan[5000, "clairvoyant"] <= wan[5000, "lru"] == wan[5000, "lru+plan"]
    assert [row.byte_gap_closed for row in rows if row.policy in ("lru", "lru+plan")] == [0] * 4
    assert [row.object_gap_closed for row in rows if row.policy in ("lru", "lru+plan")] == [0] * 4
    assert [row.byte_gap_closed for row in rows if row.policy == "bound"] == [1, 1]
    peaks = {row.result.capacity_bytes for row in rows if row.policy in ("clairvoyant", "bound")}
    assert peaks == {row.result.peak_usage_bytes for row in rows if row.policy == "lru"}


def test_without_watermarks_every_policy_decides_at_each_access(trace: Trace) -> None:
    lru, gdsf, bound = compare(trace, [5000], policies=["lru", "gdsf"])
    assert lru.result.wan_bytes == run_policy("lru", trace, 5000).wan_bytes
    assert gdsf.object_gap_closed > 0
    assert bound.result.capacity_bytes == gdsf.result.capacity_bytes == 5000
    alone = compare(trace, [5000], policies=["gdsf"], with_bound=False)
    assert [(row.policy, row.byte_gap_closed, row.object_gap_closed) for row in alone] == [
        ("gdsf", None, None)
    ]


def test_parts_of_files_have_no_bound(trace: Trace) -> None:
    partial = dataclasses.replace(trace, read_bytes=trace.size_bytes[trace.item] // 2)
    rows = compare(partial, [5000], policies=["lru"], xcache=CacheConfig(1, block_bytes=100))
    assert [(row.policy, row.byte_gap_closed) for row in rows] == [("lru", None)]


def test_a_plan_needs_watermarks_and_a_planner(trace: Trace) -> None:
    for missing in ({"planner": Idle()}, {"xcache": CacheConfig(1)}):
        with pytest.raises(ConfigError, match="planner"):
            compare(trace, [5000], policies=["lru+plan"], **missing)


def test_no_gap_is_none(trace: Trace) -> None:
    lru, *_, bound = (row.result for row in compare(trace, [trace.footprint_bytes * 2]))
    assert byte_gap_closed(lru, lru, bound) is None


def test_errors_reach_the_caller(trace: Trace) -> None:
    with pytest.raises(ConfigError, match="no policy is called"):
        compare(trace, [5000], policies=["fifo9"])
