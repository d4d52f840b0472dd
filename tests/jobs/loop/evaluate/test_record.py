"""An evaluation on a small trace: the books balance every day."""

from typing import Any

import numpy as np
import pytest

from features.common.arrays import BoolArray, FloatArray
from features.results import LRU, STEWARD
from jobs.loop.evaluate.record import Compared, day_rows
from jobs.loop.evaluate.replay_setup import warm_age_s
from models.evaluation.promotion import HoursPerByte, daily_hours
from replay.comparison import BOUND, Candidates, compare
from replay.config import CacheConfig
from replay.engine import simulate
from replay.kernels.disk import HIT
from replay.planner import Actions, CacheState
from replay.policies.queues import lru
from replay.result import Result
from replay.trace import Trace

DAY_S = 86400
START_S = 20_000 * DAY_S + 500
CYCLE_S = 6 * 3600
FROM_S = 20_003 * DAY_S
PER_ACCESS = ("s3fifo", "clairvoyant")
NONE = np.zeros(0, np.int64)
HOURS = HoursPerByte(np.linspace(1e-3, 2e-3, 60), np.full(60, 5e-4))


class Fetcher:
    """Fetches by turns, useful or not, and evicts the lowest file there is."""

    def actions(self, state: CacheState) -> Actions:
        first = state.as_of_s // CYCLE_S % 40
        return Actions(np.arange(first, first + 2), state.item[-1:], NONE, state.item[:1])


def trace(seed: int) -> Trace:
    rng = np.random.default_rng(seed)
    n = 3000
    time_s = START_S + np.sort(rng.integers(0, 8 * DAY_S, n))
    return Trace(time_s, (rng.zipf(1.3, n) % 60).astype(np.int32), rng.integers(1, 50, 60))


def compared(seed: int) -> tuple[Trace, Compared]:
    reads = trace(seed)
    cache = CacheConfig(int(0.2 * reads.footprint_bytes))
    policies = {STEWARD: lru, **dict.fromkeys((*PER_ACCESS, BOUND))}
    planners = {LRU: None, "lru+x": Fetcher()}
    lineup = Candidates(cache.capacity_bytes, policies, cache, planners, CYCLE_S, FROM_S)

    def hours(result: Result, hit: BoolArray) -> FloatArray:
        return daily_hours(reads, result, hit, HOURS)

    (at,) = compare(reads, [lineup], count_from_s=FROM_S, hours=hours)
    return reads, Compared(0.2, at, CYCLE_S, {"lru+x": 0.25})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_days_of_every_policy_add_up_to_its_replay_and_to_what_was_asked_for(seed: int) -> None:
    reads, at = compared(seed)
    assert set(at.comparison.rows) == {LRU, "lru+x", STEWARD, *PER_ACCESS, BOUND}
    rows: list[dict[str, Any]] = day_rows([at], model_version="m/1", scored_by={"lru+x": "m/1"})
    by_day: dict[str, int] = {}
    for when, item in zip(reads.time_s.tolist(), reads.item.tolist(), strict=True):
        day = str(np.datetime64(when, "s").astype("datetime64[D]"))
        if when >= FROM_S:
            by_day[day] = by_day.get(day, 0) + int(reads.size_bytes[item])
    for policy, replayed in at.comparison.rows.items():
        mine = [row for row in rows if row["policy"] == policy]
        assert [row["on_day"] for row in mine] == sorted(by_day)
        for row in mine:
            # What was asked for came from disk, or over the WAN; the rest of the WAN was prefetched.
            assert row["wan_bytes"] == by_day[row["on_day"]] - row["hit_bytes"] + row["prefetch_bytes"]
            assert 0 <= row["wasted_bytes"] <= row["prefetch_bytes"]
        for name in ("wan_bytes", "hit_bytes", "requests", "hits", "prefetch_bytes", "wasted_bytes"):
            assert sum(row[name] for row in mine) == getattr(replayed.result, name)
        assert {row["scored_by"] for row in mine} == {"m/1" if policy == "lru+x" else None}
        assert {row["model_weight"] for row in mine} == {0.25 if policy == "lru+x" else None}
        assert {row["capacity_bytes"] for row in mine} == {int(0.2 * reads.footprint_bytes)}
    assert at.comparison.rows["lru+x"].result.prefetch_bytes > 0


def test_the_hours_of_each_day_are_those_of_its_reads() -> None:
    reads, at = compared(6)
    outcome = np.zeros(reads.n_accesses, np.uint8)
    simulate(reads, CacheConfig(int(0.2 * reads.footprint_bytes)), count_from_s=FROM_S, outcome=outcome)
    hit = np.zeros(reads.n_accesses, np.bool_)
    lru(reads, at.comparison.rows[STEWARD].result.capacity_bytes, hit)
    for policy, hits in ((LRU, (outcome & HIT) != 0), (STEWARD, hit)):
        by_day: dict[int, float] = {}
        for when, item, was_hit in zip(reads.time_s.tolist(), reads.item.tolist(), hits, strict=True):
            if when >= FROM_S:
                per_byte = float((HOURS.hit if was_hit else HOURS.missed)[item])
                of_read = per_byte * int(reads.size_bytes[item])
                by_day[when // DAY_S] = by_day.get(when // DAY_S, 0.0) + of_read
        hours = at.comparison.rows[policy].core_hours
        assert hours is not None
        assert hours.tolist() == pytest.approx([by_day[day] for day in sorted(by_day)])
    assert at.comparison.rows[BOUND].core_hours is None


def test_the_age_is_that_of_the_warm_up_alone() -> None:
    reads = trace(5)
    cache = CacheConfig(int(0.1 * reads.footprint_bytes))
    age_s = warm_age_s(reads, cache, until_s=FROM_S)
    cut = reads.first_at(FROM_S)
    later = Trace(reads.time_s, np.append(reads.item[:cut], reads.item[cut:][::-1]), reads.size_bytes)
    assert age_s is not None
    assert warm_age_s(later, cache, until_s=FROM_S) == age_s
    assert warm_age_s(reads, CacheConfig(10**6), until_s=FROM_S) is None
    assert warm_age_s(reads, cache, until_s=START_S) is None
