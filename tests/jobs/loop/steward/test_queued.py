"""What queues name by DID, a steward knows by the cache's paths."""

from __future__ import annotations

import datetime as dt
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from raw_records import AT_S, hashed

from features.common.errors import ServiceError
from features.schema import CONTENTS, FILES
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.queue import write
from jobs.loop.ingest.queue_entries import check_entries
from jobs.loop.plan.items import contents
from jobs.loop.steward import running
from jobs.loop.steward.running import QueueReader
from prefetch.target import Held

SCOPE, LFN = "mc26_14TeV", "/store/mc/Run4/A/AOD/v1-v1/0/f.root"
HELD, COMING = "AOD.1._1.root", "AOD.1._2.root"


@pytest.mark.parametrize("prefix", [None, "/atlas/rucio"])
def test_queued_files_are_due_at_their_paths(tmp_path: Path, prefix: str | None) -> None:
    tables, day_s = Tables(str(tmp_path)), AT_S + 86400
    names = [(SCOPE, HELD), (SCOPE, COMING), ("cms", LFN)]
    known = {"dataset": "s:d", "size_bytes": 1, "known_at": dt.datetime.fromtimestamp(AT_S, dt.UTC)}
    rows = [known | {"did": f"{scope}:{name}", "scope": scope, "name": name} for scope, name in names]
    tables.replace_rows(FILES, rows, ())
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
    known = {"scope": "cms", "size_bytes": 1, "known_at": dt.datetime.fromtimestamp(AT_S, dt.UTC)}
    tables.replace_rows(FILES, [known | {"did": f"cms:{name}", "name": name} for name in names], ())
    start = dt.datetime.fromtimestamp(now_s + 7200, dt.UTC).isoformat()
    asked = [
        {"file": "cms:/sure", "expected_start": start},
        {"file": "cms:/half", "expected_start": start, "certainty": 0.5},
        {"file": "cms:/hardly", "expected_start": start, "certainty": 1e-9},
        {"file": "cms:/now"},
        {"file": "cms:/maybe now", "certainty": 0.25},
    ]
    entries = check_entries(
        [{"job_id": f"j{i}"} | entry for i, entry in enumerate(asked)], as_of_s=now_s, stale_s=86400
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
