"""What a steward reports of itself; and that it decides nothing by a clock that cannot be right."""

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from steward_figures import steward_figures

from features.common.errors import InputError, TargetUnavailable
from prefetch.steward.book import newest_use_s
from prefetch.steward.clock import WRONG_S, Clock, uptime_s
from prefetch.steward.figures import Evicted, Eviction, Recent, read

OF_AN_ORDER: dict[str, Any] = {"version": "cachecast-emea/3", "version_since_s": 4.5, "server": "v6.2.1"}


def test_the_last_hour_is_counted_by_reason_and_forgets_also_without_evictions() -> None:
    recent = Recent()
    for minute in range(120):
        recent.add(60.0 * minute, f"/a{minute}", 2, "a plan evicts it")
        recent.add(60.0 * minute + 5, f"/b{minute}", 1, "next in the order lru")
    assert recent.last_hour(60.0 * 119) == {  # the last 60 minutes begun
        "a plan evicts it": Evicted(60, 120),
        "next in the order lru": Evicted(60, 60),
    }
    assert recent.last_hour(60.0 * 149)["next in the order lru"] == Evicted(30, 30)
    assert recent.last_hour(60.0 * 300) == {}
    assert recent.newest()[:2] == (
        Eviction(60.0 * 119 + 5, "/b119", 1, "next in the order lru"),
        Eviction(60.0 * 119, "/a119", 2, "a plan evicts it"),
    )
    assert len(recent.newest()) == 20


def test_a_hostile_name_cannot_damage_the_file(tmp_path: Path) -> None:
    recent = Recent()
    recent.add(1.0, "/a\udc80\x1b[2J\u202e" + "x" * 5000, 1, "a plan evicts it")
    published = steward_figures(**OF_AN_ORDER, newest=recent.newest(), last_hour=recent.last_hour(1.0))
    published.write(tmp_path / "xc1.json")
    assert read(tmp_path / "xc1.json") == published
    (name,) = [eviction.name for eviction in published.newest]
    assert name.isprintable() and len(name) <= 300


@pytest.mark.parametrize(
    "changes",
    [
        {"at_s": "now"},
        {"at_s": float("nan")},
        {"at_s": 1e300},
        {"at_s": -1},
        {"used_bytes": 10**30},
        {"used_bytes": 1.5},
        {"alarms": {"a": 1}},
        {"alarms": []},
        {"last_hour": {"why": 5}},
        {"newest": [{"name": "/a"}]},
        {"cache": None},
    ],
    ids=str,
)
def test_figures_that_mean_nothing_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "xc1.json"
    path.write_text(json.dumps(dataclasses.asdict(steward_figures(**OF_AN_ORDER)) | changes))
    with pytest.raises(InputError, match=r"xc1\.json: it is damaged"):
        read(path)


def test_no_file_is_no_steward_and_others_are_refused_at_once(tmp_path: Path) -> None:
    assert read(tmp_path / "none.json") is None
    for name, make in (
        ("fifo", os.mkfifo),
        ("folder", lambda path: path.mkdir()),
        ("endless", lambda path: path.symlink_to("/dev/zero")),
        ("cut", lambda path: path.write_text('{"cache": "xc1"')),
        ("deep", lambda path: path.write_text("[" * 100_000)),
        ("bytes", lambda path: path.write_bytes(b"\xff\xfe")),
    ):
        make(tmp_path / name)
        with pytest.raises(InputError):
            read(tmp_path / name)


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
