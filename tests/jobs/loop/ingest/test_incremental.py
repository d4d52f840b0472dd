import contextlib
import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest
from pulls import LOCAL, pulled
from raw_records import gstream, trace
from rucio_avro import write_dump

from features.schema import ACCESSES, FILES, PULLS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull, pull_input
from jobs.loop.ingest.pull_input import Engine, PullSummary

DUMP = Path(__file__).parents[3] / "golden/pull/rucio_dumps/atlas_and_cms/input.json"


def new_in(
    tables: Tables, path: str | Path, source: str = "rucio_traces", *, engine: Engine = LOCAL
) -> PullSummary:
    return pulled(tables, source, path, engine=engine, new_only=True)


def counts(summary: PullSummary) -> tuple[int, int, int]:
    return summary.n_rows, summary.n_new, summary.n_unchanged


def test_an_hourly_pull_reads_what_is_new(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_input, "MERGED_AT_ONCE", 2)
    raw = tmp_path / "raw files"
    raw.mkdir()
    names = [f"traces.2026-03-0{n}.jsonl" for n in (1, 2, 3)]
    for name in names:
        (raw / name).write_text(trace(uuid=name) + "broken\n")
    days = str(raw / "traces.2026-03-0[1-3]*")
    assert counts(new_in(tables, days)) == (6, 3, 0)
    assert counts(new_in(tables, days)) == (0, 0, 3)
    with (raw / names[1]).open("a") as file:
        file.write(trace(uuid="late"))
    (raw / "traces.2026-03-04.jsonl").write_text(trace(uuid="fourth"))
    (raw / "traces.2026-03-05.jsonl.part").write_text(trace(uuid="half"))
    again = new_in(tables, raw / "traces.2026-03-{01,02,04,05}*")
    assert (counts(again), again.n_duplicates, again.n_rejected) == ((4, 2, 1), 1, {"malformed JSON": 1})
    for path in (raw, raw / "*05*"):  # what is half written waits, also if all is read again
        assert pulled(tables, "rucio_traces", path).n_new == 0
    assert counts(new_in(tables, raw / names[1])) == (0, 0, 1)
    os.utime(raw / names[0], (1, 1))
    assert counts(new_in(tables, days)) == (2, 0, 2)
    assert tables.snapshot(ACCESSES).n_rows == 5
    assert tables.snapshot(PULLS).n_rows == 4


def test_a_pull_that_dies_before_its_mark_is_made_good(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text(trace(uuid="a"))
    with monkeypatch.context() as patch:
        patch.setattr(pull_input, "_mark", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            new_in(tables, tmp_path / "a")
    assert tables.snapshot(ACCESSES).n_rows == 1
    again = new_in(tables, tmp_path / "a")
    assert (counts(again), again.n_duplicates) == ((1, 0, 0), 1)
    assert counts(new_in(tables, tmp_path / "a")) == (0, 0, 1)


def test_marks_are_kept_by_source(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(trace(uuid="a"))
    new_in(tables, tmp_path / "a")
    assert new_in(tables, tmp_path / "a", "rucio_files").n_rows == 1


def test_two_pulls_that_set_marks_at_once_both_do(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    mark, stage = pull_input.Mark("file:///a", 1, dt.datetime.now(dt.UTC)), Tables.stage
    with monkeypatch.context() as patch:

        def late(*args: Any, **options: Any) -> Any:
            patch.undo()
            pull_input._mark(tables, "rucio_files", [mark])
            return stage(*args, **options)

        patch.setattr(Tables, "stage", late)
        pull_input._mark(tables, "rucio_traces", [mark])
    assert tables.snapshot(PULLS).n_rows == 2


def test_a_dump_is_one_input(spark_engine: Engine, tables: Tables, tmp_path: Path) -> None:
    dump = str(write_dump(DUMP, tmp_path / "dump"))
    first = new_in(tables, dump, "rucio_dumps", engine=spark_engine)
    assert (first.n_new, first.n_unchanged) == (3, 0)
    assert counts(new_in(tables, dump, "rucio_dumps", engine=spark_engine)) == (0, 0, 8)
    os.utime(tmp_path / "dump/rses/part-m-00001.avro", (1, 1))
    assert new_in(tables, dump, "rucio_dumps", engine=spark_engine).n_duplicates == 3
    assert tables.snapshot(FILES).n_rows == 3


@pytest.mark.parametrize("new_only", [True, False])
def test_a_pull_of_files_still_being_written_says_so(tmp_path: Path, new_only: bool) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    day_s = int(dt.datetime(2026, 3, 5, tzinfo=dt.UTC).timestamp())

    def again() -> PullSummary:
        return pull.run(settings, source="xcache_gstream", path=str(raw), day_s=day_s, new_only=new_only)

    (raw / "gstream-1-20260305T000000Z.capture").write_bytes(b"")
    assert (again().alarms, again().n_unfinished) == ((), 0)
    (raw / "gstream-2-20260305T010000Z.capture.part").write_bytes(b"")
    (alarm,) = again().alarms
    assert "1 file at" in alarm
    assert "end in .part, still being written" in alarm
    (raw / "gstream-3-20260305T000000Z.capture").write_text(gstream(["/store/f"]))
    both = again()
    assert (both.n_rows, both.n_unfinished, both.alarms) == (1, 1, ())


@pytest.mark.parametrize(
    ("source", "text"), [("rucio_traces", trace()), ("xcache_gstream", gstream(["/store/f"]))]
)
def test_a_pull_that_is_done_needs_neither_its_input_nor_the_lock_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, text: str
) -> None:
    settings, pull_it = Settings.load(tables=str(tmp_path / "tables"), env={}), pull_input.pull
    (tmp_path / "a").write_text(text)
    with contextlib.ExitStack() as held:

        def before_another(*args: Any, **options: Any) -> PullSummary:
            summary = pull_it(*args, **options)
            (tmp_path / "a").unlink()
            held.enter_context(Tables.of(settings).exclusive())
            return summary

        monkeypatch.setattr(pull_input, "pull", before_another)
        path, day_s = str(tmp_path / "a"), 1775692800
        assert pull.run(settings, source=source, path=path, day_s=day_s, new_only=True).n_new == 1
