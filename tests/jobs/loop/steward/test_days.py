"""What a run of the steward keeps of its days."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from features.common.times import DAY_S, parse_as_of
from jobs.ground.caches.steward_days import of_day
from jobs.ground.store.tables import Tables
from jobs.loop.steward.steward import Days
from prefetch.steward.figures import StewardFigures
from replay.steward import Saved

NOON_S = parse_as_of("2026-03-01T23:00:00Z")
DAY = NOON_S // DAY_S


def figures(at_s: float, **changes: Any) -> StewardFigures:
    counts: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(StewardFigures)), 0)
    told = {"cache": "xc1", "following": "lru", "alarms": {}, "at_s": at_s, "started_s": NOON_S}
    return StewardFigures(**(counts | told | changes))


def test_each_day_has_its_own_sums(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    days = Days(tables, figures(NOON_S), "m/3")
    days.note(figures(NOON_S + 1800, evicted_files=2, evicted_bytes=20), {DAY: Saved(50, 40)})
    assert of_day(tables, cache="xc1", day="2026-03-01") == []
    later = figures(NOON_S + 3700, evicted_files=3, evicted_bytes=30, following="learned")
    days.note(later, {DAY: Saved(70, 45), DAY + 1: Saved(5, 0)})
    (first,) = of_day(tables, cache="xc1", day="2026-03-01")
    assert (first["watched_s"], first["evicted_files"], first["evicted_bytes"]) == (3700, 3, 30)
    assert (first["lru_wan_bytes"], first["wan_bytes"], first["saved_wan_bytes"]) == (70, 45, 25)
    assert (first["orders"], first["model_version"]) == ("lru, learned", "m/3")
    last = figures(NOON_S + 5000, evicted_files=3, evicted_bytes=30)
    days.note(last, {DAY: Saved(70, 45), DAY + 1: Saved(9, 1)}, is_last=True)
    (second,) = of_day(tables, cache="xc1", day="2026-03-02")
    assert (second["watched_s"], second["evicted_files"], second["saved_wan_bytes"]) == (1300, 0, 8)


def test_a_table_that_cannot_be_written_does_not_end_the_steward(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tables").write_text("no folder")
    days = Days(Tables(str(tmp_path / "tables")), figures(NOON_S), None)
    days.note(figures(NOON_S + 10), {}, is_last=True)
    assert "is not kept" in caplog.text
