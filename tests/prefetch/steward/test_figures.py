"""What a steward reports of itself: recent evictions, and a file that is damaged or lies."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from features.common.errors import InputError
from prefetch.steward.figures import Evicted, Eviction, Recent, StewardFigures, read


def figures(**changes: Any) -> StewardFigures:
    told: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(StewardFigures)), 0)
    told |= {"cache": "xc1", "following": "lru", "alarms": {}, "last_hour": {}, "newest": ()}
    told |= {"version": "cachecast-emea/3", "version_since_s": 4.5, "server": "v6.2.1", "acts": True}
    return StewardFigures(**(told | changes))


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
    told = figures(newest=recent.newest(), last_hour=recent.last_hour(1.0))
    told.write(tmp_path / "xc1.json")
    assert read(tmp_path / "xc1.json") == told
    (name,) = [one.name for one in told.newest]
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
    path.write_text(json.dumps(dataclasses.asdict(figures()) | changes))
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
