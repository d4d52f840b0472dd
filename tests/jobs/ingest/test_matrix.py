"""What every source makes of every damage: a matrix that is written down once, and shown in the docs.

After a change on purpose, `WRITE_GOLDEN=1 pytest tests/jobs/ingest/test_matrix.py` writes matrix and page;
read the difference cell by cell.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from matrix_records import DAMAGES, FORMS, TOKEN, Form, Record, named, written, write_cinfo

from features.job_records import JOB_RECORDS
from features.schema import ACCESSES, FILES, REJECTS
from jobs.ingest import pull_input
from jobs.ingest.local_engine import LocalEngine
from jobs.ingest.pull_input import Engine
from jobs.settings.our_sources import OURS
from jobs.store.tables import Tables

ROOT = Path(__file__).parents[3]
MATRIX = ROOT / "tests/golden/matrix.json"
PAGE = ROOT / "docs/damage.md"
DAY = dt.date(2026, 3, 5)
BY_SPARK = {"rucio_dumps"}
FOLDERS = {"xcache_cinfo"}
GROUPS = {
    "Reads, by tracers and monitoring": ("rucio_traces", "cms_aaa", "cmssw_pop", "cms_tracer"),
    "Reads, by OSDF": ("pelican", "osdf_log", "osdf_accesses"),
    "Reads, by caches and servers": ("xcache_gstream", "xcache_cinfo", "xrootd_fstream"),
    "Files, and reads by dataset": ("rucio_files", "rucio_dumps", "atlas_popularity", "popularity_series"),
    "Jobs": ("htcondor_history", "wmarchive", "panda_jobs"),
}
FOLLOWING = {"event_id", "did", "known_at", "updated_at", "day", "user", "job"}
"""Columns that follow from others, or stand for a read."""


def test_every_source_is_in_the_matrix() -> None:
    assert set(FORMS) == set(OURS) == {source for sources in GROUPS.values() for source in sources}


class Pulled:
    """The tables after pulls of a source."""

    def __init__(self, source: str, engine: Engine, folder: Path) -> None:
        self.source, self.engine, self.tables = source, engine, Tables(str(folder / "tables"))

    def __call__(self, path: Path) -> int:
        told = pull_input.pull(
            self.engine, self.tables, source=self.source, path=str(path), day=DAY, salt="s"
        )
        assert told.n_rows == told.n_new + told.n_duplicates + sum(told.n_rejected.values())
        return told.n_new

    def rows(self) -> list[dict[str, Any]]:
        found = [table for table in (ACCESSES, FILES, JOB_RECORDS) if self.tables.exists(table)]
        return [row for table in found for row in self.tables.read_arrow(table).to_pylist()]

    def rejects(self) -> list[dict[str, Any]]:
        return self.tables.read_arrow(REJECTS).to_pylist() if self.tables.exists(REJECTS) else []


def tokens() -> dict[str, str]:
    """What the names in the records of each damage hold."""
    return {kind: f"k{number:02d}k" for number, kind in enumerate(DAMAGES)}


def records_of(source: str) -> dict[str, list[Record]]:
    """The records of each damage that can be done to the source's."""
    form, found = FORMS[source], {}
    for number, (kind, token) in enumerate(tokens().items()):
        records = DAMAGES[kind](form, named(form.record, token, number))
        if records is not None:
            found[kind] = list(records)
    return found


def put(source: str, folder: Path, records: Mapping[str, Sequence[Record]], *, turned: bool = False) -> Path:
    """A folder with a file for each damage; `turned`: the last one first."""
    folder.mkdir()
    for number, (kind, some) in enumerate(records.items()):
        at = len(records) - number if turned else number
        (folder / f"{at:02d}-{tokens()[kind]}.txt").write_bytes(written(FORMS[source], kind, some))
    return folder


def pulled_by_lines(source: str, folder: Path) -> dict[str, str]:
    """All damages in one pull, after one that has a later read already, and before one of all again."""
    records, pulled = records_of(source), Pulled(source, LocalEngine(), folder)
    if LAST in records:
        pulled(put(source, folder / "a", {LAST: records[LAST][:1]}))
    pulled(put(source, folder / "b", records))
    once = pulled.rows()
    n_new = pulled(put(source, folder / "c", records, turned=True))
    if n_new: print("NEW AGAIN", n_new, [r for r in pulled.rows() if r not in once])
    rejects = [(row["input"].rsplit("/", 1)[-1], row["reason"]) for row in pulled.rejects()]
    if TOKEN  in repr((once, pulled.rejects())): print("TOKEN", [r for r in once+pulled.rejects() if TOKEN in repr(r)])
    return {
        kind: cell(kind, once, sorted({why for file, why in rejects if tokens()[kind] in file}))
        for kind in records
    }


def cell(kind: str, rows: Sequence[Record], reasons: Sequence[str]) -> str:
    """What became of the records of a damage."""
    plain, *others = [row for row in rows if tokens()["nothing"] in repr(row)]
    assert not others
    found = [row for row in rows if tokens()[kind] in repr(row)]
    told = sorted(difference(row, plain) for row in found)
    return " + ".join([*told, *(f"refused: {why}" for why in reasons)]) or "LOST"


def difference(row: Record, plain: Record) -> str:
    changes = [
        f"{name} {shown(value)}"
        for name, value in plainly(row).items()
        if value != plainly(plain)[name] and name not in FOLLOWING
    ]
    return ", ".join(changes) or "row"


def plainly(row: Record) -> Record:
    def plain(value: Any) -> Any:
        for token in tokens().values():
            if isinstance(value, list):
                value = [one.replace(token, "…") for one in value]
            value = value.replace(token, "…") if isinstance(value, str) else value
        return value

    return {name: plain(value) for name, value in row.items()}


def shown(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    return "unknown" if value is None else str(value)


def pulled_by_folders(source: str, folder: Path) -> dict[str, str]:
    """Each damage in a pull of its own, as a folder is one input."""
    found, rejects, records = [], {}, records_of(source)
    for kind, some in records.items():
        pulled, path = Pulled(source, LocalEngine(), folder / tokens()[kind]), folder / tokens()[kind] / "xc"
        write_cinfo(some, path)
        pulled(path)
        assert pulled(path) == 0
        found += pulled.rows()
        rejects[kind] = sorted({row["reason"] for row in pulled.rejects()})
        assert TOKEN not in repr((found, pulled.rejects()))
    return {kind: cell(kind, found, rejects[kind]) for kind in records}


LAST = "the later one first"


@pytest.mark.parametrize("source", [source for source in FORMS if source not in BY_SPARK | FOLDERS])
def test_lines(tmp_path: Path, source: str) -> None:
    check(source, pulled_by_lines(source, tmp_path))


@pytest.mark.parametrize("source", sorted(FOLDERS))
def test_folders(tmp_path: Path, source: str) -> None:
    check(source, pulled_by_folders(source, tmp_path))


def check(source: str, found: Mapping[str, str]) -> None:
    print(json.dumps({source: found}, indent=1))
