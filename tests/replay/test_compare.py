"""Side-by-side rows."""

from __future__ import annotations

import numpy as np
import pytest

from features.errors import ConfigError
from replay.compare import compare
from replay.planner import Actions
from replay.result import byte_gap_closed
from replay.trace import Trace


class Idle:
    def actions(self, state):
        none = np.zeros(0, np.int64)
        return Actions(none, none, none, none)


@pytest.fixture(scope="module")
def trace():
    rng = np.random.default_rng(3)
    item = (200 * rng.random(5000) ** 2).astype(np.int64)
    return Trace(np.sort(rng.integers(0, 10 * 86400, 5000)), item, rng.integers(1, 1000, 200))


def test_rows_come_by_capacity_and_policy(trace):
    done = []
    rows = compare(
        trace,
        [5000, 20000],
        planner_factory=lambda capacity: Idle() if capacity == 5000 else None,
        count_from_s=2 * 86400,
        on_done=lambda policy, capacity: done.append((capacity, policy)),
    )
    names = [(row.capacity_bytes, row.policy) for row in rows]
    assert names == [
        (5000, "lru"),
        (5000, "clairvoyant"),
        (5000, "lru+plan"),
        (5000, "bound"),
        (20000, "lru"),
        (20000, "clairvoyant"),
        (20000, "bound"),
    ]
    assert sorted(done) == sorted(names)
    wan = {name: row.result.wan_bytes for name, row in zip(names, rows, strict=True)}
    assert wan[5000, "bound"] <= wan[5000, "clairvoyant"] <= wan[5000, "lru"] == wan[5000, "lru+plan"]
    assert [row.byte_gap_closed for row in rows if row.policy in ("lru", "lru+plan")] == [0, 0, 0]
    assert [row.byte_gap_closed for row in rows if row.policy == "bound"] == [1, 1]


def test_no_gap_is_none(trace):
    lru, *_, bound = (row.result for row in compare(trace, [trace.footprint_bytes * 2]))
    assert byte_gap_closed(lru, lru, bound) is None


def test_errors_reach_the_caller(trace):
    with pytest.raises(ConfigError, match="no policy"):
        compare(trace, [5000], policies=["fifo9"])
