"""Verdicts on days of plans, against an independent slow XCache, and of a steward, against its records."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from pushed_world import PushedWorld, pushed_world
from xcache_oracle import brute_simulate

from features.common.times import DAY_S
from prefetch.actions import Action
from prefetch.day_verdict import (
    GRID_S,
    CacheContents,
    CacheRecord,
    PushedActions,
    RecordedPushes,
    ReplayedDay,
    StewardShadow,
    beginning,
    judge_day,
    replayable,
)
from replay.config import CacheConfig
from replay.engine import simulate
from replay.planner import CacheState
from replay.trace import Trace


@pytest.fixture(scope="module")
def world() -> PushedWorld:
    return pushed_world()


def judged_day(world: PushedWorld, day_s: int) -> ReplayedDay:
    return judge_day(world.record(day_s), world.config, day_s=day_s)


def late_day(world: PushedWorld, n: int = 20) -> int:
    return world.first_day_s + n * DAY_S


def test_both_replays_of_a_day_equal_a_slow_independent_cache(world: PushedWorld) -> None:
    day_s = late_day(world)
    record = world.record(day_s)
    assert record.begin is not None
    verdict = judge_day(record, world.config, day_s=day_s)
    assert verdict.withheld is None and verdict.warmed_s == day_s - record.begin.at_s
    part = replayable(record, record.begin, day_s + DAY_S)
    moments: dict[str, Any] = {"cycle_s": GRID_S, "plan_from_s": record.begin.at_s, "count_from_s": day_s}
    lru, _ = brute_simulate(part.trace, world.config, planner=None, **moments)
    assert (verdict.lru_hit_bytes, verdict.lru_wan_bytes) == (lru["hit_bytes"], lru["wan_bytes"])
    plan, _ = brute_simulate(part.trace, world.config, planner=RecordedPushes(part.done, GRID_S), **moments)
    assert verdict.replayed_hit_bytes == plan["hit_bytes"]
    assert verdict.read_bytes == plan["bytes_requested"] == verdict.hit_bytes + verdict.missed_bytes


def test_the_verdict_is_what_the_cache_really_saved(world: PushedWorld) -> None:
    judged = [judged_day(world, late_day(world, n)) for n in range(16, 24)]
    believed = [verdict for verdict in judged if verdict.withheld is None]
    assert len(believed) >= 6, [verdict.withheld for verdict in judged]
    daily = world.observed.daily  # type: ignore[attr-defined]
    for verdict, n in zip(judged, range(16, 24), strict=True):
        at = int(np.flatnonzero(daily.day == late_day(world, n) // DAY_S)[0])
        assert verdict.hit_bytes == daily.hit_bytes[at]
        if verdict.withheld is None:
            assert verdict.replayed_wan_bytes is not None and verdict.lru_wan_bytes is not None
            assert verdict.replayed_wan_bytes == pytest.approx(daily.wan_bytes[at], rel=0.01)
            assert verdict.saved_wan_bytes == verdict.lru_wan_bytes - verdict.replayed_wan_bytes
    # LRU from the first day of all, which needs no warming, says the same as LRU warmed for three ages.
    lru = simulate(world.whole.trace, world.config).daily
    for verdict, n in zip(judged, range(16, 24), strict=True):
        if verdict.withheld is None:
            at = int(np.flatnonzero(lru.day == late_day(world, n) // DAY_S)[0])
            assert verdict.lru_wan_bytes == pytest.approx(lru.wan_bytes[at], rel=0.01)
    # The plan lifts what it may plan above plain LRU, and not the control group.
    gains = [
        (
            verdict.planned_hit_share - verdict.planned_lru_hit_share,
            verdict.control_hit_share - verdict.control_lru_hit_share,
        )
        for verdict in believed
        if None not in (verdict.planned_hit_share, verdict.planned_lru_hit_share)
        and verdict.control_hit_share is not None
        and verdict.control_lru_hit_share is not None
    ]
    planned, control = np.mean(gains, axis=0)
    assert planned > 0.02 and planned > control


def test_a_replay_that_does_not_fit_the_records_gives_no_verdict(world: PushedWorld) -> None:
    day_s = late_day(world)
    record = world.record(day_s)
    small = dataclasses.replace(world.config, capacity_bytes=world.config.capacity_bytes // 2)
    that_day = slice(record.trace.first_at(day_s), record.trace.first_at(day_s + DAY_S))
    hit, missed = record.hit_bytes.copy(), record.missed_bytes.copy()
    told_share = np.cumsum(hit[that_day]) / hit[that_day].sum()
    lost = slice(that_day.start, that_day.start + int(np.searchsorted(told_share, 0.03)) + 1)
    missed[lost] += hit[lost]
    hit[lost] = 0
    nothing = PushedActions(*(column[:0] for column in record.done))
    for verdict in (
        judge_day(record, small, day_s=day_s),
        judge_day(dataclasses.replace(record, hit_bytes=hit, missed_bytes=missed), world.config, day_s=day_s),
        judge_day(dataclasses.replace(record, done=nothing), world.config, day_s=day_s),
    ):
        assert verdict.withheld is not None and "off the hit bytes" in verdict.withheld
        assert verdict.saved_wan_bytes is None and verdict.lru_wan_bytes is None
        assert verdict.replayed_hit_bytes is not None


def test_short_records_and_idle_days_give_no_verdict(world: PushedWorld) -> None:
    early = judged_day(world, world.first_day_s)
    assert early.withheld is not None and "reach back" in early.withheld
    idle = judged_day(world, late_day(world, 400))
    assert idle.withheld == "the cache tells of no read that day"


def test_the_beginning_is_three_times_what_it_holds_ago() -> None:
    time_s, came = np.array([50, 10, 30, 20, 40, 60]), np.full(6, 100)
    assert beginning(time_s, came, age_bytes=100, day_s=60) == (30, 5.0)
    assert beginning(time_s, came, age_bytes=150, day_s=60) == (10, 500 / 150)
    assert beginning(time_s, came, age_bytes=200, day_s=60) == (None, 2.5)
    assert beginning(time_s, came, age_bytes=200, day_s=5) == (None, 0.0)


def test_a_pin_is_a_touch_and_all_is_done_once() -> None:
    def column(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, np.int64)

    pin, fetch, evict = Action.PIN.code, Action.PREFETCH.code, Action.EVICT.code
    planner = RecordedPushes(
        PushedActions(column(10, 100, 101, 300), column(1, 2, 3, 4), column(pin, evict, fetch, pin)), 100
    )

    def at(as_of_s: int, *pinned: int) -> tuple[list[int], ...]:
        held = column(1, 2, 4)
        state = CacheState(
            *(as_of_s, 1, 0.9, 0.95, held, held, held, np.isin(held, pinned), held < 0), 0, 0, None
        )
        got = planner.actions(state)
        return tuple(ids.tolist() for ids in (got.pin, got.unpin, got.evict, got.prefetch))

    assert at(100) == ([1], [], [2], [])
    assert at(200, 1) == ([], [1], [], [3])
    assert at(300) == ([4], [], [], [])


FILE_BYTES, N_FILES = 10, 60
CONFIG = CacheConfig(20 * FILE_BYTES, purge_interval_s=60)
NONE = np.zeros(0, np.int64)


def record() -> CacheRecord:
    """Two days of reads; on the second one a steward missed every tenth read."""
    draw = np.random.default_rng(1)
    n = 4000
    time_s = np.sort(draw.integers(0, 2 * DAY_S, n))
    trace = Trace(time_s, (draw.zipf(1.3, n) % N_FILES).astype(np.int32), np.full(N_FILES, FILE_BYTES))
    missed = np.where(np.arange(n) % 10 == 0, FILE_BYTES, 0)
    nothing = CacheContents(0, NONE, NONE, NONE)
    done = PushedActions(NONE, NONE, NONE)
    return CacheRecord(trace, FILE_BYTES - missed, missed, done, np.zeros(N_FILES, np.bool_), nothing, 9.0)


def lru_bytes() -> int:
    daily = simulate(record().trace, CONFIG).daily
    return int(daily.wan_bytes[daily.day == 1].sum())


def judged(**changes: int) -> ReplayedDay:
    shadow = StewardShadow(DAY_S, lru_bytes(), 0)._replace(**changes)
    return judge_day(record(), CONFIG, day_s=DAY_S, shadow=shadow)


def test_a_day_of_a_steward_saves_what_lru_fetches_and_the_cache_did_not() -> None:
    verdict, plain = judged(prefetched_bytes=70), judge_day(record(), CONFIG, day_s=DAY_S)
    assert verdict.withheld is None
    assert verdict.lru_wan_bytes == lru_bytes()
    assert verdict.replayed_wan_bytes == verdict.missed_bytes + 70
    assert verdict.saved_wan_bytes == lru_bytes() - verdict.missed_bytes - 70
    assert "off the hit bytes" in str(plain.withheld)


@pytest.mark.parametrize(
    ("watched_s", "of_lru", "why"),
    [
        (DAY_S - 3601, 1.0, "watched 23.0 h of that day"),
        (DAY_S, 1.03, "3.0 % off the bytes that its replay fetches"),
        (DAY_S, 0.97, "% off the bytes that its replay fetches"),
    ],
)
def test_a_day_that_the_steward_did_not_see_as_the_replay_does_is_withheld(
    watched_s: int, of_lru: float, why: str
) -> None:
    verdict = judged(watched_s=watched_s, lru_wan_bytes=int(of_lru * lru_bytes()))
    assert why in str(verdict.withheld)
    assert (verdict.saved_wan_bytes, verdict.lru_wan_bytes) == (None, None)
    assert dataclasses.asdict(verdict)["missed_bytes"] > 0
