"""Files that a worker writes: a task that runs twice leaves rows once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from features.schema import STATES, arrow_schema
from jobs.ground.spark.exchange import Staging
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables

KEY = MomentKey.at(1_772_323_200, "r")


def test_only_the_files_of_the_attempt_that_counts_are_read(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    row = {"kind": "file", "entity": "s:a", "dataset": "s:d", "last_read_s": 0.0, "numbers": b"12345678"}
    rows = KEY, pa.Table.from_pylist([row], arrow_schema(STATES))
    staging = Staging.of(tables, STATES)
    (lost,), (kept,) = (list(staging.written([rows])) for _ in range(2))
    assert (lost.file.key, lost.file.folder) == (kept.file.key, kept.file.folder)
    assert lost.file.name != kept.file.name
    tables.commit(STATES, [kept.file], base=None)
    assert tables.read_arrow(STATES)["entity"].to_pylist() == ["s:a"]
