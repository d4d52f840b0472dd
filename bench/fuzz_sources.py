"""Damaged records through every source of lines that `cachecast pull` has: written or counted, all of them.

bench/fuzz_sources.py [--lines N] [--seeds S] [--source NAME ...]     exit code 1 if one breaks

Both engines read them, and must leave the same in the tables.

The lines are those of the golden cases in tests/golden/pull, with damage (tests/support/oracles/damage.py).

Needs the environment that `make verify` makes: .venv/bin/python bench/fuzz_sources.py
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "oracles")]

from damage import damaged  # noqa: E402

from features.schema import (  # noqa: E402
    ACCESSES,
    FILES,
    JOB_RECORDS,
    REJECTS,
)
from jobs.ground.settings.our_sources import OURS  # noqa: E402
from jobs.ground.settings.tree import Settings  # noqa: E402
from jobs.ground.spark.session import spark_session  # noqa: E402
from jobs.ground.store.tables import Tables  # noqa: E402
from jobs.loop.ingest import pull_input  # noqa: E402
from jobs.loop.ingest.local_engine import LocalEngine  # noqa: E402
from jobs.loop.ingest.pull_input import Engine  # noqa: E402
from jobs.loop.ingest.sources import load_source  # noqa: E402
from jobs.loop.ingest.spark_engine import SparkEngine  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "pull"
BINARY = {"xcache_cinfo", "rucio_dumps"}


def main() -> int:
    """A row per reader and seed; 1 if one raised, or lost a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--source", action="append", help="one reader, instead of all; may be repeated")
    options = parser.parse_args()
    settings = Settings.load(env={"CACHECAST_SPARK__MASTER": "local[2]"})
    spark = spark_session(settings.spark)
    engines = (LocalEngine(), SparkEngine(spark))
    print(
        f"{'source':20} {'engine':6} {'seed':>4} {'rows':>8} {'written':>8} {'twice':>7} {'refused':>8}"
        f" {'s':>6}  verdict"
    )
    equal = [
        same(engines, source, options.lines, seed)
        for source in options.source or sorted(set(OURS) - BINARY)
        for seed in range(options.seeds)
    ]
    spark.stop()
    print(f"{sum(equal)} of {len(equal)} readings lost nothing")
    return 0 if all(equal) else 1


def same(engines: Sequence[Engine], source: str, n_lines: int, seed: int) -> bool:
    """Read damaged lines with each engine that reads them; whether they lose nothing and leave the same."""
    reading = (
        engines if load_source(source).decode is None else engines[:1]
    )  # what is decoded is the local engine's
    tables = [left(engine, source, n_lines, seed) for engine in reading]
    is_same = tables[0] is not None and tables[0] == tables[-1]
    if not is_same and None not in tables:
        print(f"{source:20} DEFECT: the engines differ", flush=True)
    return is_same


def left(engine: Engine, source: str, n_lines: int, seed: int) -> object:
    """Read damaged lines, and print what became of them; what is in the tables, None for a defect."""
    (first, *_) = sorted(path for path in (GOLDEN / source).rglob("input.*") if path.is_file())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cachecast-fuzz-") as folder:
        path = Path(folder) / f"damaged{first.suffix}"
        path.write_bytes(damaged(first.read_bytes(), n_lines, seed))
        tables = Tables(f"{folder}/tables")
        try:
            summary = pull_input.pull(
                engine, tables, source=source, path=str(path), day=dt.date(2026, 3, 5), salt="s", caches=()
            )
            rows = [
                sorted(map(repr, tables.read_arrow(table).drop_columns("input").to_pylist()))
                if table is REJECTS
                else sorted(map(repr, tables.read_arrow(table).to_pylist()))
                for table in (ACCESSES, FILES, JOB_RECORDS, REJECTS)
                if tables.exists(table)
            ]
        except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
            print(
                f"{source:20} {engine.name:6} {seed:4}  DEFECT: {type(error).__name__}: {str(error)[:300]}",
                flush=True,
            )
            return None
    n_refused = sum(summary.n_rejected.values())
    is_whole = summary.n_rows == summary.n_new + summary.n_duplicates + n_refused
    print(
        f"{source:20} {engine.name:6} {seed:4} {summary.n_rows:8} {summary.n_new:8} {summary.n_duplicates:7}"
        f" {n_refused:8} {time.monotonic() - began:6.1f}  {'ok' if is_whole else 'DEFECT: rows are lost'}",
        flush=True,
    )
    return (rows, summary.n_rejected) if is_whole else None


if __name__ == "__main__":
    sys.exit(main())
