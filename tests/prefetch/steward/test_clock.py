"""A steward that begins by a clock that cannot be right: it says so, and decides nothing by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from features.common.errors import TargetUnavailable
from prefetch.steward.book import newest_use_s
from prefetch.steward.clock import WRONG_S, Clock, uptime_s

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0


class Time:
    """A clock that can be set, of a cache whose own is `skew_s` ahead."""

    def __init__(self, skew_s: float | None = 0.0) -> None:
        self.now_s, self.skew_s = NOW_S, skew_s

    def clock(self, max_skew_s: float = 60) -> Clock:
        target: Any = SimpleNamespace(clock_skew_s=self._skew)
        began = {"started_s": self.now_s, "booted_s": uptime_s()}
        return Clock(target, lambda: self.now_s, max_skew_s=max_skew_s, **began)

    def _skew(self) -> float:
        if self.skew_s is None:
            raise TargetUnavailable("it does not answer")
        return self.skew_s


@pytest.mark.parametrize("days", [-400, -3, 3, 400])
def test_a_clock_days_from_the_newest_record_is_in_doubt_until_it_is_right(days: int) -> None:
    at = Time()
    clock, newest_s = at.clock(), NOW_S + days * DAY_S
    doubt = clock.doubt(newest_s)
    assert doubt is not None and ("before" if days < 0 else "after") in doubt and str(abs(days)) in doubt
    assert not clock.was_wrong_at_start
    at.now_s = newest_s + 5
    assert (clock.doubt(newest_s), clock.was_wrong_at_start) == (None, True)
    assert clock.fault() is not None  # it was set since the start


def test_a_clock_that_nobody_sets_ends_no_steward_however_little_it_may_differ() -> None:
    """With `max_clock_skew = "0s"` one would begin anew again and again, and evict nothing."""
    at = Time()
    clock = at.clock(max_skew_s=0)
    assert (clock.doubt(NOW_S), clock.was_wrong_at_start, clock.fault()) == (None, False, None)


@pytest.mark.parametrize("skew_s", [-2 * WRONG_S, 2 * WRONG_S])
def test_a_server_that_is_days_away_is_believed_by_nobody(skew_s: float) -> None:
    at = Time(skew_s)
    clock = at.clock()
    assert f"{2 * WRONG_S:.0f} s" in (clock.doubt(NOW_S) or "")
    at.skew_s = 10.0
    assert (clock.doubt(NOW_S), clock.fault(), clock.was_wrong_at_start) == (None, None, True)


@pytest.mark.parametrize("newest_s", [None, NOW_S, NOW_S - DAY_S + 9, NOW_S + DAY_S - 9])
def test_a_plausible_clock_is_believed_from_then_on(newest_s: float | None) -> None:
    at = Time(None)
    clock = at.clock()
    assert (clock.doubt(newest_s), clock.fault(), clock.was_wrong_at_start) == (None, None, False)
    assert clock.doubt(NOW_S - 90 * DAY_S) is None  # an idle cache, later on


def test_a_damaged_record_in_a_hundred_is_none() -> None:
    assert newest_use_s([]) is None
    assert newest_use_s([5.0, 7.0]) == 7.0
    assert newest_use_s([1e300, *map(float, range(100))]) == 99.0
    assert "s since 1970" in (Time().clock().doubt(1e18) or "")
