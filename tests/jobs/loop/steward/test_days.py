"""What a run of the steward keeps of its days, and what it knows of names in queues."""

import dataclasses
import datetime as dt
import json
import os
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from raw_records import AT_S, hashed
from steward_figures import steward_figures
from table_rows import put_files

from features.common import files
from features.common.errors import ServiceError
from features.common.times import DAY_S, parse_as_of
from features.schema import CONTENTS
from jobs.ground.caches import steward_days
from jobs.ground.caches.steward_days import WaitingDays, of_day
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.queue import write
from jobs.loop.ingest.queue_entries import check_entries
from jobs.loop.plan.items import contents
from jobs.loop.steward import running
from jobs.loop.steward.running import KeptPins, QueueReader
from jobs.loop.steward.steward import Days
from prefetch.steward.figures import StewardFigures
from prefetch.target import Held
from replay.steward import Saved

NOON_S = parse_as_of("2026-03-01T23:00:00Z")
DAY = NOON_S // DAY_S


def figures(at_s: float, **changes: Any) -> StewardFigures:
    return steward_figures(**({"at_s": at_s, "started_s": NOON_S} | changes))


def test_each_day_has_its_own_sums(tables: Tables, tmp_path: Path) -> None:
    waiting = WaitingDays(tables, "xc1", tmp_path / "days")
    days = Days(waiting, figures(NOON_S), "m/3")
    days.note(figures(NOON_S + 1800, evicted_files=2, evicted_bytes=20), {DAY: Saved(50, 40)})
    assert of_day(tables, cache="xc1", day="2026-03-01") == []
    later = figures(NOON_S + 3700, evicted_files=3, evicted_bytes=30, following="learned")
    days.note(later, {DAY: Saved(70, 45), DAY + 1: Saved(5, 0)})
    waiting.send(within_s=60)
    (first,) = of_day(tables, cache="xc1", day="2026-03-01")
    assert (first["watched_s"], first["evicted_files"], first["evicted_bytes"]) == (3700, 3, 30)
    assert (first["lru_wan_bytes"], first["wan_bytes"], first["saved_wan_bytes"]) == (70, 45, 25)
    assert (first["orders"], first["model_version"]) == ("lru, learned", "m/3")
    last = figures(NOON_S + 5000, evicted_files=3, evicted_bytes=30)
    days.note(dataclasses.replace(last, acts=False), {DAY: Saved(70, 45), DAY + 1: Saved(9, 1)})
    idle = dataclasses.replace(last, at_s=NOON_S + 6000)
    days.note(idle, {DAY: Saved(70, 45), DAY + 1: Saved(9, 1)}, is_last=True)
    waiting.send(within_s=60)
    (second,) = of_day(tables, cache="xc1", day="2026-03-02")
    assert (second["watched_s"], second["evicted_files"], second["saved_wan_bytes"]) == (1300, 0, 8)


def test_days_that_no_table_takes_wait_also_over_a_restart(tables: Tables, tmp_path: Path) -> None:
    """A day ends without tables, and the steward too; the next one gives both its days and its own."""
    (tmp_path / "tables").write_text("no folder")
    waiting = WaitingDays(Tables(str(tmp_path / "tables")), "xc1", tmp_path / "days")
    days = Days(waiting, figures(NOON_S), None)
    days.note(figures(NOON_S + 1800, evicted_files=2), {DAY: Saved(50, 40)})
    days.note(figures(NOON_S + 3700, evicted_files=3), {DAY: Saved(50, 40)})
    days.note(figures(NOON_S + 3800, evicted_files=4), {DAY + 1: Saved(7, 0)}, is_last=True)
    waiting.send(within_s=60)
    waiting.send(within_s=60)
    assert waiting.fault is not None and "the figures of 2 days wait for the tables: " in waiting.fault

    (tmp_path / "tables").unlink()
    again = WaitingDays(tables, "xc1", tmp_path / "days")
    started_s = NOON_S + 3900
    days = Days(again, figures(started_s, started_s=started_s), None)
    days.note(figures(started_s + 60, started_s=started_s, evicted_files=9), {}, is_last=True)
    again.send(within_s=60)
    again.send(within_s=60)
    assert again.fault is None and not (tmp_path / "days").exists()
    (first,) = of_day(tables, cache="xc1", day="2026-03-01")
    assert (first["watched_s"], first["evicted_files"], first["wan_bytes"]) == (3700, 3, 40)
    second = of_day(tables, cache="xc1", day="2026-03-02")
    assert [(row["watched_s"], row["evicted_files"]) for row in second] == [(100, 1), (60, 9)]


def test_tables_that_hang_hold_up_no_steward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, n_asked = threading.Event(), list[str]()

    def hang(*_args: object, day: str, **_others: object) -> None:
        n_asked.append(day)
        answers.wait(60)
        raise ServiceError("gone")

    monkeypatch.setattr(steward_days, "keep", hang)
    monkeypatch.setattr(steward_days, "SILENT_S", 0.2)
    waiting = WaitingDays(Tables(str(tmp_path / "tables")), "xc1", tmp_path / "days")
    days, began = Days(waiting, figures(NOON_S), None), time.monotonic()
    for minute in range(1, 130):
        days.note(figures(NOON_S + minute * 60.0), {})
    assert time.monotonic() - began < 10
    time.sleep(0.3)
    waiting.send()
    assert waiting.fault is not None and "they have not answered for" in waiting.fault
    assert n_asked == ["2026-03-01"], "one at a time"
    answers.set()
    waiting.send(within_s=60)
    assert waiting.fault is not None and waiting.fault.endswith("gone")


ROW = {
    "started_at": "2026-03-01T00:00:00Z", "watched_s": 60, "orders": "lru", "model_version": None,
    "wan_bytes": 1, "lru_wan_bytes": 1, "evicted_files": 1, "evicted_bytes": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        '[["2026-03-01", {"started_at"',
        json.dumps([["../../elsewhere", ROW]]),
        json.dumps([["9999-12-31", ROW]]),
        json.dumps([["2026-03-01", ROW | {"started_at": "2026-03-01T00:00:00"}]]),
        json.dumps([["2026-03-01", ROW | {"wan_bytes": 10**30}]]),
        json.dumps([["2026-03-01", ROW | {"evicted_files": -1}]]),
        "[" * 10**6,
        None,
    ],
)
def test_a_damaged_or_planted_file_of_waiting_days_is_left_out_and_holds_up_none(
    tables: Tables, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    if content is None:
        os.mkfifo(tmp_path / "xc1.days")
    else:
        (tmp_path / "xc1.days").write_text(content)
    waiting = WaitingDays(tables, "xc1", tmp_path / "xc1.days")
    assert "cannot be read" in caplog.text and (tmp_path / "xc1.damaged").exists()
    Days(waiting, figures(NOON_S), None).note(figures(NOON_S + 60), {}, is_last=True)
    waiting.send(within_s=60)
    assert waiting.fault is None and not (tmp_path / "xc1.days").exists()
    assert [row["watched_s"] for row in of_day(tables, cache="xc1", day="2026-03-01")] == [60]
    assert {path.name for path in tmp_path.iterdir()} == {"tables", "xc1.damaged"}


def test_pins_that_cannot_be_kept_leave_no_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a start without the journal would evict what was pinned since."""
    now_s, file = int(time.time()), tmp_path / "xc1" / "xc1.pins"  # a first start has no folder
    pins, more = {"/a": now_s + 60}, {"/a": now_s + 60, "/b": now_s + 60}
    kept_pins = KeptPins(file)
    kept_pins.keep(pins)
    assert KeptPins(file).standing(now_s) == ["/a"]
    with monkeypatch.context() as full:
        full.setattr(files, "write", Mock(side_effect=OSError(28, "No space left on device")))
        kept_pins.keep(more)
        assert KeptPins(file).standing(now_s) is None
        assert kept_pins.standing(now_s) == ["/a", "/b"]
    kept_pins.keep(more)
    assert KeptPins(file).standing(now_s) == ["/a", "/b"]
    file.unlink()
    kept_pins.keep(more)
    kept_pins.keep(more)
    assert KeptPins(file).standing(now_s + 61) == []


@pytest.mark.parametrize("hours", [-25, 25])
def test_pins_that_were_read_on_another_day_say_nothing_of_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hours: int
) -> None:
    now_s, file = int(time.time()), tmp_path / "xc1" / "xc1.pins"  # a first start has no folder
    KeptPins(file).keep({"/a": now_s + 10 * DAY_S})
    os.utime(file, (now_s + hours * 3600, now_s + hours * 3600))
    assert KeptPins(file).standing(now_s) is None and "not of the last day" in caplog.text
    kept_pins = KeptPins(file)
    kept_pins.keep({"/a": now_s + 10 * DAY_S})
    os.utime(file, (now_s + hours * 3600, now_s + hours * 3600))
    kept_pins.keep({"/a": now_s + 10 * DAY_S})
    assert KeptPins(file).standing(now_s) == ["/a"]


@pytest.mark.parametrize("content", ["{", "[]", '{"/a": 1e300}', '{"/a": "1"}', "{}\0", None])
def test_pins_that_somebody_else_left_say_nothing(tmp_path: Path, content: str | None) -> None:
    """Not even that there are none: the steward then evicts nothing."""
    file = tmp_path / "xc1.pins"
    if content is None:
        os.mkfifo(file)
    else:
        file.write_text(content)
    file.chmod(0o600)
    assert KeptPins(file).standing(time.time()) is None
    file.unlink(missing_ok=True)
    file.write_text("{}")
    for mode, pins in ((0o600, []), (0o666, None)):
        file.chmod(mode)
        assert KeptPins(file).standing(time.time()) == pins


SCOPE, LFN = "mc26_14TeV", "/store/mc/Run4/A/AOD/v1-v1/0/f.root"
HELD, COMING = "AOD.1._1.root", "AOD.1._2.root"


@pytest.mark.parametrize("prefix", [None, "/atlas/rucio"])
def test_queued_files_are_due_at_their_paths(tmp_path: Path, prefix: str | None) -> None:
    tables, day_s = Tables(str(tmp_path)), AT_S + 86400
    names = [(SCOPE, HELD), (SCOPE, COMING), ("cms", LFN)]
    put_files(tables, ({"scope": scope, "name": name} for scope, name in names), dataset="s:d")
    entries = check_entries([{"job_id": "j", "dataset": "s:d"}], as_of_s=day_s, stale_s=86400)
    write(tables, entries, queue="q", source="q", as_of_s=day_s)
    cache = CacheSettings(name="xc", kind="xcache", url="root://xc:1", capacity=10**9, prefix=prefix)
    atlas = {hashed(SCOPE, name, "/atlas/rucio") for name in (HELD, COMING)}
    assert QueueReader(tables, cache).due_s(day_s).keys() == {LFN} | (atlas if prefix else set())
    held = contents(
        [Held(hashed(SCOPE, HELD, "/atlas/rucio"), 1, 1, True, AT_S, False)],
        pa.array([f"{SCOPE}:{HELD}"]),
        taken_s=AT_S,
    )
    tables.replace_partition(CONTENTS, held, MomentKey.at(AT_S, "xc"))
    assert QueueReader(tables, cache).due_s(day_s).keys() == atlas | {LFN}


def test_what_is_half_as_sure_is_twice_as_far_away(tmp_path: Path) -> None:
    tables, now_s = Tables(str(tmp_path)), AT_S + 86400
    names = ["/sure", "/half", "/hardly", "/now", "/maybe now"]
    put_files(tables, ({"name": name} for name in names))
    start = dt.datetime.fromtimestamp(now_s + 7200, dt.UTC).isoformat()
    queued = [
        {"file": "cms:/sure", "expected_start": start},
        {"file": "cms:/half", "expected_start": start, "certainty": 0.5},
        {"file": "cms:/hardly", "expected_start": start, "certainty": 1e-9},
        {"file": "cms:/now"},
        {"file": "cms:/maybe now", "certainty": 0.25},
    ]
    entries = check_entries(
        [{"job_id": f"j{i}"} | entry for i, entry in enumerate(queued)], as_of_s=now_s, stale_s=86400
    )
    write(tables, entries, queue="q", source="q", as_of_s=now_s)
    due_s = QueueReader(
        tables, CacheSettings(name="xc", kind="xcache", url="root://xc:1", capacity=10)
    ).due_s(now_s)
    away = {name: round(at_s - now_s) for name, at_s in due_s.items()}
    assert away == {"/sure": 7200, "/half": 14400, "/hardly": 7_200_000, "/now": 0, "/maybe now": -7200}


def test_tables_that_hang_are_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's pins, which are read together with the queues, must not wait for them."""
    answers = threading.Event()

    def head(*_: object) -> None:
        answers.wait(60)
        raise ServiceError("gone")

    monkeypatch.setattr(Tables, "head", head)
    monkeypatch.setattr(running, "PATIENCE_S", 0.2)
    cache = CacheSettings(name="xc", kind="xcache", url="root://xc:1", capacity=10**9)
    queued, began = QueueReader(Tables(str(tmp_path)), cache), time.monotonic()
    assert [dict(queued.due_s(AT_S)) for _ in range(100)] == [{}] * 100
    assert time.monotonic() - began < 5
    answers.set()
