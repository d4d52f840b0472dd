"""The label `kept`: what a clairvoyant kept of what was known in the training window."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
from local_engines import LOCAL

from features.schema import ACCESSES, arrow_schema
from features.spec import FeatureSpec
from jobs.ground.store.tables import Tables
from jobs.loop.train.engines import RegionData
from jobs.loop.train.features import clairvoyant_hits

SPEC = FeatureSpec(cycle_s=3600, horizons_s=(3600,), candidate_s=86400, active_dataset_s=86400)
START = 1_772_323_200
GB = 10**9


def accesses(reads: list[tuple[str, int, int]]) -> pa.Table:
    """Reads as (name, seconds after START, seconds until known), each of a file of 1 GB."""

    def instant(seconds: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(START + seconds, dt.UTC)

    rows: list[dict[str, Any]] = [
        {"did": f"s:{name}", "scope": "s", "name": name, "accessed_at": instant(at),
         "known_at": instant(at + late), "size_bytes": GB, "n_reads": 1, "source": "test",
         "event_id": str(i), "day": f"{instant(at):%Y-%m-%d}"}
        for i, (name, at, late) in enumerate(reads)
    ]  # fmt: skip
    schema = arrow_schema(ACCESSES).append(pa.field("day", pa.string()))
    return pa.Table.from_pylist(rows, schema=schema)


def hits(
    tmp_path: Path, reads: list[tuple[str, int, int]], *, until: int, share: float
) -> set[tuple[str, int]]:
    tables = Tables(str(tmp_path))
    tables.replace_arrow(ACCESSES, accesses(reads))
    data = RegionData(LOCAL, tables, SPEC, "r", {"*": "test"})
    found = clairvoyant_hits(data, since_s=START, until_s=START + until, share=share)
    assert found.column_names == ["did", "at"]
    return {(row["did"][2:], row["at"] - START) for row in found.to_pylist()}


READS = [("a", 10, 1), ("b", 20, 1), ("c", 30, 1), ("a", 40, 1), ("b", 50, 1), ("a", 50, 1), ("c", 90, 1)]


def test_it_keeps_the_file_that_is_read_first_and_passes_the_others_by(tmp_path: Path) -> None:
    assert hits(tmp_path, READS, until=1000, share=0.34) == {("a", 40), ("a", 50)}
    assert hits(tmp_path, READS, until=1000, share=1.0) == {("a", 40), ("b", 50), ("a", 50), ("c", 90)}


def test_it_does_not_know_what_was_told_later(tmp_path: Path) -> None:
    late = [("a", 10, 1), ("b", 20, 1), ("b", 30, 5000), ("a", 40, 1)]
    assert hits(tmp_path, late, until=1000, share=0.5) == {("a", 40)}
    assert hits(tmp_path, late, until=9000, share=0.5) == {("b", 30)}


def test_two_reads_in_one_second_are_told_once_by_the_first(tmp_path: Path) -> None:
    assert hits(tmp_path, [("a", 10, 1), ("a", 10, 1), ("a", 20, 1)], until=1000, share=1.0) == {("a", 20)}
