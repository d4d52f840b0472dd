"""What every source makes of every damage: a matrix that is written down once, and shown in the docs.

After a change on purpose, `WRITE_GOLDEN=1 pytest tests/jobs/loop/ingest/test_matrix.py` writes matrix and
page; read the difference cell by cell.
"""

import datetime as dt
import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulls
import pyarrow as pa
import pytest
from matrix_records import DAMAGES, FORMS, TOKEN, Record, named, write_cinfo, written
from pyspark.sql import SparkSession
from rucio_avro import write_dump

from features.schema import ACCESSES, FILES, JOB_RECORDS, REJECTS
from jobs.ground.settings.our_sources import OURS
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import sources
from jobs.loop.ingest.pull_input import Engine
from jobs.loop.ingest.sources import Site, rucio_dumps
from jobs.loop.ingest.sources.workspace import parse

ROOT = Path(__file__).parents[4]
MATRIX = ROOT / "tests/golden/matrix.json"
PAGE = ROOT / "docs/damage.md"
BEGIN = "<!-- written by tests/jobs/loop/ingest/test_matrix.py -->\n"
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

    def __init__(self, source: str, folder: Path, engine: Engine = pulls.LOCAL) -> None:
        self.source, self.engine, self.tables = source, engine, Tables(str(folder / "tables"))

    def __call__(self, path: Path) -> int:
        summary = pulls.pulled(self.tables, self.source, path, engine=self.engine, salt="s")
        assert summary.n_rows == summary.n_new + summary.n_duplicates + sum(summary.n_rejected.values())
        return summary.n_new

    def rows(self) -> list[dict[str, Any]]:
        present = [table for table in (ACCESSES, FILES, JOB_RECORDS) if self.tables.exists(table)]
        return [row for table in present for row in self.tables.read_arrow(table).to_pylist()]

    def rejects(self) -> list[dict[str, Any]]:
        return self.tables.read_arrow(REJECTS).to_pylist() if self.tables.exists(REJECTS) else []


def tokens() -> dict[str, str]:
    """What the names in the records of each damage hold."""
    return {kind: f"k{number:02d}k" for number, kind in enumerate(DAMAGES)}


def records_of(source: str) -> dict[str, list[Record]]:
    """The records of each damage that can be done to the source's."""
    form, by_kind = FORMS[source], {}
    for number, (kind, token) in enumerate(tokens().items()):
        records = DAMAGES[kind](form, named(form.record, token, number))
        if records is not None:
            by_kind[kind] = list(records)
    return by_kind


def put(source: str, folder: Path, records: Mapping[str, Sequence[Record]], *, turned: bool = False) -> Path:
    """A folder with a file for each damage; `turned`: the last one first."""
    folder.mkdir()
    for number, (kind, some) in enumerate(records.items()):
        at = len(records) - number if turned else number
        (folder / f"{at:02d}-{tokens()[kind]}.txt").write_bytes(written(FORMS[source], kind, some))
    return folder


def pulled_by_lines(source: str, folder: Path) -> dict[str, str]:
    """All damages in one pull, after one that has a later read already, and before one of all again."""
    records, pulled = records_of(source), Pulled(source, folder)
    if LAST in records:
        pulled(put(source, folder / "a", {LAST: records[LAST][:1]}))
    pulled(put(source, folder / "b", records))
    once = pulled.rows()
    assert pulled(put(source, folder / "c", records, turned=True)) == 0
    assert pulled.rows() == once
    rejects = [(row["input"].rsplit("/", 1)[-1], row["reason"]) for row in pulled.rejects()]
    assert TOKEN not in repr((once, pulled.rejects()))
    return {
        kind: cell(kind, once, sorted({why for file, why in rejects if tokens()[kind] in file}))
        for kind in records
    }


def cell(kind: str, rows: Sequence[Record], reasons: Sequence[str]) -> str:
    """What became of the records of a damage."""
    plain, *others = [row for row in rows if tokens()["nothing"] in repr(row)]
    assert not others
    with_token = [row for row in rows if tokens()[kind] in repr(row)]
    differences = sorted(difference(row, plain) for row in with_token)
    return " + ".join([*differences, *(f"refused: {why}" for why in reasons)]) or "LOST"


def difference(row: Record, plain: Record) -> str:
    changes = [
        f"{name} {as_text(value)}"
        for name, value in plainly(row).items()
        if value != plainly(plain)[name] and name not in FOLLOWING
    ]
    return ", ".join(changes) or "row"


def plainly(row: Record) -> Record:
    def plain(value: Any) -> Any:
        for token in tokens().values():
            if isinstance(value, list):
                value = [text.replace(token, "…") for text in value]
            value = value.replace(token, "…") if isinstance(value, str) else value
        return value

    return {name: plain(value) for name, value in row.items()}


def as_text(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    return "unknown" if value is None else str(value)


def pulled_by_folders(source: str, folder: Path) -> dict[str, str]:
    """Each damage in a pull of its own, as a folder is one input."""
    rows, rejects, records = [], {}, records_of(source)
    for kind, some in records.items():
        pulled, path = Pulled(source, folder / tokens()[kind]), folder / tokens()[kind] / "xc"
        write_cinfo(some, path)
        pulled(path)
        assert pulled(path) == 0
        rows += pulled.rows()
        rejects[kind] = sorted({row["reason"] for row in pulled.rejects()})
        assert TOKEN not in repr((rows, pulled.rejects()))
    return {kind: cell(kind, rows, rejects[kind]) for kind in records}


def pulled_from_dump(spark: SparkSession, folder: Path) -> dict[str, str]:
    """All damages in one dump, whose refused rows are distinguished before they are counted."""
    records = records_of("rucio_dumps")
    replicas = [replica for some in records.values() for replica in some]
    answers = {
        "rses": [{"ID": replicas[0]["RSE_ID"], "RSE": "PIC"}],
        "replicas": replicas,
        "contents": [{"SCOPE": "cms", "NAME": "D", "CHILD_SCOPE": "x", "CHILD_NAME": "y", "CHILD_TYPE": "F"}],
    }
    (folder / "answers.json").write_text(json.dumps(answers))
    dump = write_dump(folder / "answers.json", folder / "dump")
    frame, query = rucio_dumps.read(spark, str(dump), day=pulls.DAY.isoformat())
    site = Site(day=pulls.DAY.isoformat())
    batches = frame.toArrow().combine_chunks().to_batches()
    arrow = pa.Table.from_batches(
        parse(sources.load_source("rucio_dumps").of(query, site), batches, rows=1000)
    )
    rows = arrow.to_pylist()
    assert TOKEN not in repr(rows)
    good = [{n: v for n, v in row.items() if n != "sample"} for row in rows if row["reason"] is None]
    refused = {
        kind: sorted({row["reason"] for row in rows if row["reason"] and told_by(kind, row["sample"])})
        for kind in records
    }
    return {kind: cell(kind, good, refused[kind]) for kind in records}


def told_by(kind: str, sample: str) -> bool:
    return tokens()[kind] in sample or kind == f"`{sample}` as name"


LAST = "the later one first"


@pytest.mark.parametrize("source", [source for source in FORMS if source not in BY_SPARK | FOLDERS])
def test_lines(tmp_path: Path, source: str) -> None:
    check(source, pulled_by_lines(source, tmp_path))


@pytest.mark.parametrize("source", sorted(FOLDERS))
def test_folders(tmp_path: Path, source: str) -> None:
    check(source, pulled_by_folders(source, tmp_path))


def test_dumps(spark: SparkSession, tmp_path: Path) -> None:
    check("rucio_dumps", pulled_from_dump(spark, tmp_path))


def check(source: str, cells: Mapping[str, str]) -> None:
    """Compare with the matrix, or write it."""
    if os.environ.get("WRITE_GOLDEN"):
        matrix = json.loads(MATRIX.read_text()) if MATRIX.exists() else {}
        matrix[source] = dict(cells)
        MATRIX.write_text(json.dumps(matrix, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        PAGE.write_text(page({source: matrix[source] for source in FORMS if source in matrix}))
    assert cells == json.loads(MATRIX.read_text())[source]


def page(matrix: Mapping[str, Mapping[str, str]]) -> str:
    """The page of the docs with the tables of `matrix`."""
    head = PAGE.read_text().split(BEGIN)[0]
    return head + BEGIN + "\n" + "\n".join(table(title, sources, matrix) for title, sources in GROUPS.items())


def table(title: str, names: Sequence[str], matrix: Mapping[str, Mapping[str, str]]) -> str:
    lines = [
        f"\n## {title}\n",
        f"| | {' | '.join(f'`{name}`' for name in names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    kinds: dict[str, list[str]] = {}
    for kind in list(DAMAGES)[1:]:
        cells = " | ".join(in_words(matrix.get(name, {}).get(kind, "–")) for name in names)
        kinds.setdefault(cells, []).append(kind)
    lines += [f"| {', '.join(alike)} | {cells} |" for cells, alike in kinds.items() if cells.strip("–| ")]
    return "\n".join(lines) + "\n"


def in_words(content: str) -> str:
    return "=" if content == "row" else content.replace("|", "/")


def test_the_page_shows_the_matrix() -> None:
    """After a change on purpose, all of them are written with WRITE_GOLDEN=1."""
    assert PAGE.read_text() == page(json.loads(MATRIX.read_text()))


CUT = [source for source in FORMS if source not in BY_SPARK | FOLDERS | {"xrootd_fstream"}]


@pytest.mark.parametrize("source", CUT)
def test_the_table_does_not_depend_on_cuts_and_order(tmp_path: Path, source: str) -> None:
    check_cuts(source, pulls.LOCAL, tmp_path)


@pytest.mark.parametrize(
    "source",
    ["rucio_files", *(pytest.param(s, marks=pytest.mark.verify) for s in ("rucio_traces", "osdf_accesses"))],
)
def test_nor_with_spark(spark_engine: Engine, tmp_path: Path, source: str) -> None:
    check_cuts(source, spark_engine, tmp_path)


def check_cuts(source: str, engine: Engine, folder: Path) -> None:
    """Records of all damages, whole, and in random pieces and order, some of them again."""
    rng = random.Random(source)
    whole = [record for some in records_of(source).values() for record in some]
    pieces: list[list[list[Record]]] = [[[] for _ in range(rng.randint(1, 3))] for _ in range(2)]
    for record in rng.sample(whole, len(whole)) + rng.sample(whole, 5):
        rng.choice(rng.choice(pieces)).append(record)
    contents = [
        pulled_files(Pulled(source, folder / "whole"), folder / "whole", [[whole]]),
        pulled_files(Pulled(source, folder / "cut", engine), folder / "cut", pieces),
    ]
    assert contents[0][0]
    assert contents[0] == contents[1]


def pulled_files(
    pulled: Pulled, folder: Path, pieces: Sequence[Sequence[Sequence[Record]]]
) -> tuple[list[str], set[str]]:
    """The rows after pulls of files of records, and why records were refused."""
    for number, files in enumerate(pieces):
        path = folder / f"{number}"
        path.mkdir(parents=True)
        for at, records in enumerate(of_file for of_file in files if of_file):
            (path / f"{at}.txt").write_bytes(written(FORMS[pulled.source], "nothing", records))
        pulled(path)
    return sorted(map(repr, pulled.rows())), {row["reason"] for row in pulled.rejects()}
