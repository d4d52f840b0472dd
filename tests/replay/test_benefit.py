"""The benefit model: the published points come out again, sums agree with a slow walk, Eq. 1 with a scan."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_plans import Idle

from features.common.errors import ConfigError
from replay.comparison import BOUNDS, Candidates, Comparison, compare
from replay.config import CacheConfig
from replay.study.benefit import (
    PUBLISHED_POINTS,
    SSD,
    BenefitModel,
    BytesRead,
    Cluster,
    EfficiencyPoint,
    Tier,
    best_cached_fraction,
    cost,
    cpu_efficiency,
    processing_s,
)
from replay.trace import Trace

MODEL = BenefitModel()


def reads(rtt_ms: Sequence[float], miss: Any, hit: Any) -> BytesRead:
    return BytesRead(np.array(rtt_ms, float), np.array(miss, np.int64), np.array(hit, np.int64))


def test_the_published_points_come_out_and_the_ends_are_clamped() -> None:
    rtt = np.array([p.rtt_ms for p in PUBLISHED_POINTS])
    assert cpu_efficiency(rtt).tolist() == [p.cpu_efficiency for p in PUBLISHED_POINTS]
    assert cpu_efficiency(np.array([300.0])).tolist() == [0.65]
    # Between 650 and 1 100 km: 80-85 %; the line between 16 ms and 150 ms, by hand.
    assert cpu_efficiency(np.array([83.0]))[0] == pytest.approx((0.80 + 0.65) / 2)
    assert all(p.source for p in PUBLISHED_POINTS)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.just(float("nan")), st.floats(0, 300)),
            st.integers(0, 10**15),
            st.integers(0, 10**15),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([SSD, Tier("hdd", 13.9e6)]),
)
def test_costs_agree_with_a_walk_over_every_class(rows: Any, medium: Tier) -> None:
    rtt, miss, hit = zip(*rows, strict=True)
    costs = cost(reads(rtt, miss, hit), BenefitModel(miss_slowdown=0.10, medium=medium))
    wall_s = 0.0
    for ms, missed, n_hit in rows:
        known = not np.isnan(ms)
        remote = np.interp(ms, [0, 9.4, 16, 150], [0.98, 0.85, 0.80, 0.65]) if known else 0.704
        local = 0.98 if known else 0.95
        wall_s += missed / 2.4e6 / remote * 1.1
        wall_s += n_hit / 2.4e6 / local + n_hit / medium.read_rate_bytes_s
    assert costs.core_hours == pytest.approx(wall_s / 3600)
    assert costs.hs06_hours == pytest.approx(wall_s / 360)
    assert costs.cpu_hours == pytest.approx((sum(miss) + sum(hit)) / 2.4e6 / 3600)


def test_pics_crab_efficiencies_bracket_the_unknown_origins() -> None:
    """70.4 % without a cache, about 95 % local, 77.2 % with XCache: about a third of the bytes were hits."""
    nothing = reads([np.nan], [0], [10**15])
    assert cost(nothing.direct, MODEL).cpu_efficiency == pytest.approx(0.704)
    third = reads([np.nan], [66 * 10**13], [34 * 10**13])
    assert cost(third, MODEL).cpu_efficiency == pytest.approx(0.772, abs=0.002)


@given(st.floats(1, 1e3), st.floats(1, 1e3), st.integers(1, 20), st.floats(1, 100), st.integers(1, 50))
def test_the_best_fraction_is_the_first_of_a_scan(
    network: Any, cache: Any, n_nodes: Any, workflow: Any, n_slots: Any
) -> None:
    cluster = Cluster(network, cache, n_nodes, workflow, n_slots)
    x = np.linspace(0, 1, 10_001)
    times = processing_s(cluster, 1.0, x)
    best = best_cached_fraction(cluster)
    assert processing_s(cluster, 1.0, np.array([best]))[0] <= times.min() * (1 + 1e-9)
    first = x[np.flatnonzero(times <= times.min() * (1 + 1e-9))[0]]
    assert best <= first + 1e-4


@pytest.mark.parametrize(
    "wrong",
    [
        {"points": ()},
        {"points": (EfficiencyPoint(9, 0.8, ""), EfficiencyPoint(0, 0.9, ""))},
        {"points": (EfficiencyPoint(0, 0.8, ""), EfficiencyPoint(9, 0.9, ""))},
        {"hit_points": (EfficiencyPoint(0, 0.8, ""), EfficiencyPoint(9, 0.9, ""))},
        {"unknown_remote_efficiency": 0.0},
        {"hs06_per_core": 0.0},
    ],
)
def test_a_model_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="benefit"):
        BenefitModel(**wrong)


DAY_S = 86400


@pytest.fixture(scope="module")
def trace() -> Trace:
    rng = np.random.default_rng(3)
    item = (200 * rng.random(5000) ** 2).astype(np.int32)
    return Trace(np.sort(rng.integers(0, 10 * DAY_S, 5000)), item, rng.integers(1, 1000, 200))


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
    comparisons = compare(trace, lineups, count_from_s=2 * DAY_S, on_done=lambda *step: done.append(step[:2]))
    assert done == [(i, 10) for i in range(1, 11)]
    assert [at.capacity_bytes for at in comparisons] == [5000, 20000]
    for at in comparisons:
        assert list(at.rows) == ["lru", "lru+plan", "clairvoyant", "bound", "object-bound"]
        wan = {name: row.result.wan_bytes for name, row in at.rows.items()}
        assert wan["bound"] <= wan["clairvoyant"] <= wan["lru"] == wan["lru+plan"]
        assert [closed(at, name) for name in ("lru", "lru+plan", "bound")] == [0, 0, 1]
        assert [at.hits_gap_closed(name) for name in ("lru", "lru+plan", "bound")] == [0, 0, None]
        peak = max(at.rows[name].result.peak_usage_bytes for name in planners)
        assert {at.rows[name].result.capacity_bytes for name in ("clairvoyant", "bound")} == {peak}
        assert {row.capacity_bytes for row in at.rows.values()} == {at.capacity_bytes}


def test_a_row_knows_the_hours_of_its_jobs(trace: Trace) -> None:
    def hours(result: object, hit: np.ndarray) -> np.ndarray:
        return np.array([float(hit.sum())])

    candidates = Candidates(5000, dict.fromkeys(("lru", "fifo", *BOUNDS)))
    rows = compare(trace, [candidates], hours=hours)[0].rows
    assert set(rows) == {"lru", "fifo", *BOUNDS}
    for name in ("lru", "fifo"):
        core_hours = rows[name].core_hours
        assert core_hours is not None and core_hours.tolist() == [rows[name].result.hits]
    assert rows["bound"].core_hours is None
