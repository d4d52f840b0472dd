"""The contest: all that competes has the same room, and gaps are measured from LRU to the bound."""

from __future__ import annotations

import numpy as np
import pytest

from features.common.errors import ConfigError
from replay.comparison import BOUNDS, Candidates, Comparison, Gap, compare, replay_candidates
from replay.config import CacheConfig
from replay.planner import Actions, CacheState
from replay.policies import run_policy
from replay.trace import Trace

DAY_S = 86400


class Idle:
    def actions(self, state: CacheState) -> Actions:
        none = np.zeros(0, np.int64)
        return Actions(none, none, none, none)


@pytest.fixture(scope="module")
def trace() -> Trace:
    rng = np.random.default_rng(3)
    item = (200 * rng.random(5000) ** 2).astype(np.int32)
    return Trace(np.sort(rng.integers(0, 10 * DAY_S, 5000)), item, rng.integers(1, 1000, 200))


def in_line(capacity_bytes: int, *names: str) -> Candidates:
    return Candidates(capacity_bytes, dict.fromkeys((*names, *BOUNDS)))


def closed(at: Comparison, policy: str) -> float | None:
    gap = at.gap(policy)
    return None if gap is None else gap.closed


def test_the_standings_are_by_lineup_and_policy(trace: Trace) -> None:
    done: list[tuple[int, int]] = []
    planners = {"lru": None, "lru+plan": Idle()}
    lineups = [
        Candidates(size, dict.fromkeys(("clairvoyant", *BOUNDS)), CacheConfig(1), planners)
        for size in (5000, 20000)
    ]
    found = compare(trace, lineups, count_from_s=2 * DAY_S, on_done=lambda *told: done.append(told[:2]))
    assert done == [(i, 10) for i in range(1, 11)]
    assert [at.capacity_bytes for at in found] == [5000, 20000]
    for at in found:
        assert list(at.rows) == ["lru", "lru+plan", "clairvoyant", "bound", "object-bound"]
        wan = {name: row.result.wan_bytes for name, row in at.rows.items()}
        assert wan["bound"] <= wan["clairvoyant"] <= wan["lru"] == wan["lru+plan"]
        assert [closed(at, name) for name in ("lru", "lru+plan", "bound")] == [0, 0, 1]
        assert [at.hits_gap_closed(name) for name in ("lru", "lru+plan", "bound")] == [0, 0, None]
        peak = max(at.rows[name].result.peak_usage_bytes for name in planners)
        assert {at.rows[name].result.capacity_bytes for name in ("clairvoyant", "bound")} == {peak}
        assert {row.capacity_bytes for row in at.rows.values()} == {at.capacity_bytes}


def test_without_watermarks_every_policy_decides_at_each_access(trace: Trace) -> None:
    (at,) = compare(trace, [in_line(5000, "lru", "gdsf")])
    assert at.rows["lru"].result.wan_bytes == run_policy("lru", trace, 5000).wan_bytes
    gap = at.hits_gap_closed("gdsf")
    assert gap is not None and gap > 0
    assert {row.result.capacity_bytes for row in at.rows.values()} == {5000}
    (alone,) = compare(trace, [Candidates(5000, {"gdsf": None})])
    assert (alone.gap("gdsf"), alone.hits_gap_closed("gdsf")) == (None, None)


def test_a_row_comes_as_each_replay_ends_and_knows_its_hours(trace: Trace) -> None:
    def hours(result: object, hit: np.ndarray) -> np.ndarray:
        return np.array([float(hit.sum())])

    rows = {row.policy: row for row in replay_candidates(trace, [in_line(5000, "lru", "fifo")], hours=hours)}
    assert set(rows) == {"lru", "fifo", *BOUNDS}
    for name in ("lru", "fifo"):
        core_hours = rows[name].core_hours
        assert core_hours is not None and core_hours.tolist() == [rows[name].result.hits]
    assert rows["bound"].core_hours is None


def test_a_plan_needs_watermarks() -> None:
    with pytest.raises(ConfigError, match="plans need watermarks"):
        Candidates(5000, {}, planners={"lru+plan": Idle()})


def test_no_gap_is_none(trace: Trace) -> None:
    (at,) = compare(trace, [in_line(trace.footprint_bytes * 2, "lru", "fifo")])
    assert (closed(at, "fifo"), at.hits_gap_closed("fifo")) == (None, None)
    days = np.array([5, 7])
    assert Gap.of(days - 2, lru=days, bound=days - 4).closed == 0.5


def test_errors_reach_the_caller(trace: Trace) -> None:
    with pytest.raises(ConfigError, match="no policy is called"):
        compare(trace, [in_line(5000, "fifo9")])
