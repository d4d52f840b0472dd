"""Generated raw files: the same arguments give the same bytes, and the real readers read all of them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from features.errors import ConfigError
from features.schema import ACCESSES, FILES
from features.times import parse_day
from jobs import pull, workload
from jobs.tables import Tables

START = parse_day("2026-03-01")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_what_is_written_is_pulled_back_whole(tmp_path: Path, spark: SparkSession) -> None:
    made = workload.run("demo", start_s=START, seed=3, days=2, out=tmp_path / "raw")
    tables, day = Tables(str(tmp_path / "tables")), dt.date(2026, 3, 3)
    reads = pull.run(spark, tables, source="rucio_traces", path=made.traces, day=day, salt="s")
    files = pull.run(spark, tables, source="rucio_files", path=made.catalogue, day=day)
    assert (reads.n_new, dict(reads.n_rejected), reads.days) == (
        made.accesses,
        {},
        ("2026-03-01", "2026-03-02"),
    )
    assert (files.n_new, dict(files.n_rejected)) == (made.files, {})
    accesses = tables.read_arrow(ACCESSES).to_pandas()
    assert (accesses["known_at"] > accesses["closed_at"]).all()
    assert accesses["user"].str.fullmatch("[0-9a-f]{16}").all()
    assert set(accesses["did"]) <= set(tables.read_arrow(FILES, columns=["did"])["did"].to_pylist())
    assert set(accesses["activity"]) == {"analysis", "production"}


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        workload.run("demo", start_s=START, seed=seed, days=1, out=tmp_path / folder)
    assert contents(tmp_path / "a") == contents(tmp_path / "b") != contents(tmp_path / "c")


def test_a_scenario_of_ones_own_is_a_file_and_a_bad_one_is_told(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text("days = 3\n")
    with pytest.raises(ConfigError, match="missing key"):
        workload.run(str(own), start_s=START, seed=1, days=None, out=tmp_path)
    with pytest.raises(ConfigError, match="there is no"):
        workload.run("../base", start_s=START, seed=1, days=None, out=tmp_path)
