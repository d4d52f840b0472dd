"""The verdict on a day of a steward: LRU replayed, against what the cache recorded."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from features.common.times import DAY_S
from prefetch.accounting.day_verdict import (
    CacheContents,
    CacheRecord,
    PushedActions,
    ReplayedDay,
    StewardShadow,
    judge_day,
)
from replay.config import CacheConfig
from replay.engine import simulate
from replay.trace import Trace

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
    seen = StewardShadow(DAY_S, lru_bytes(), 0)._replace(**changes)
    return judge_day(record(), CONFIG, day_s=DAY_S, shadow=seen)


def test_a_day_of_a_steward_saves_what_lru_fetches_and_the_cache_did_not() -> None:
    found, plain = judged(prefetched_bytes=70), judge_day(record(), CONFIG, day_s=DAY_S)
    assert found.withheld is None
    assert found.lru_wan_bytes == lru_bytes()
    assert found.replayed_wan_bytes == found.missed_bytes + 70
    assert found.saved_wan_bytes == lru_bytes() - found.missed_bytes - 70
    assert "off the hit bytes" in str(plain.withheld)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"watched_s": DAY_S - 3601}, "watched 23.0 h of that day"),
        ({"lru_wan_bytes": int(1.03 * lru_bytes())}, "3.0 % off the bytes that its replay fetches"),
        ({"lru_wan_bytes": int(0.97 * lru_bytes())}, "% off the bytes that its replay fetches"),
    ],
)
def test_a_day_that_the_steward_did_not_see_as_the_replay_does_is_withheld(
    changes: dict[str, int], why: str
) -> None:
    found = judged(**changes)
    assert why in str(found.withheld)
    assert (found.saved_wan_bytes, found.lru_wan_bytes) == (None, None)
    assert dataclasses.asdict(found)["missed_bytes"] > 0


def test_small_differences_are_those_of_two_ways_to_count() -> None:
    assert judged(watched_s=DAY_S - 3600, lru_wan_bytes=int(1.015 * lru_bytes())).withheld is None
