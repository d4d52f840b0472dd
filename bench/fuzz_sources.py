"""Damaged records through every reader of lines that `cachecast pull` has: written or counted, all of them.

bench/fuzz_sources.py [--lines N] [--seeds S] [--source NAME ...]     exit code 1 if a reader breaks

The lines are those of the golden cases in tests/golden/pull, with damage (tests/support/oracles/damage.py).

Needs the environment that `make verify` makes: .venv/bin/python bench/fuzz_sources.py
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "oracles")]

from damage import damaged  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from jobs.ingest import raw_input  # noqa: E402
from jobs.settings.sources import SOURCES  # noqa: E402
from jobs.settings.tree import Settings  # noqa: E402
from jobs.spark.session import spark_session  # noqa: E402
from jobs.store.tables import Tables  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "pull"
BINARY = {"xcache_cinfo", "rucio_dumps"}


def main() -> int:
    """A row per reader and seed; 1 if one raised, or lost a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--source", action="append", help="one reader, instead of all; may be repeated")
    given = parser.parse_args()
    settings = Settings.load(env={"CACHECAST_SPARK__MASTER": "local[2]"})
    spark = spark_session(settings.spark)
    print(
        f"{'reader':20} {'seed':>4} {'rows':>8} {'written':>8} {'twice':>7} {'refused':>8} {'s':>6}  verdict"
    )
    kept = [
        row(spark, source, given.lines, seed)
        for source in given.source or sorted(set(SOURCES) - BINARY)
        for seed in range(given.seeds)
    ]
    spark.stop()
    print(f"{sum(kept)} of {len(kept)} readings lost nothing")
    return 0 if all(kept) else 1


def row(spark: SparkSession, source: str, n_lines: int, seed: int) -> bool:
    """Read damaged lines, and print what became of them."""
    (first, *_) = sorted(path for path in (GOLDEN / source).rglob("input.*") if path.is_file())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cachecast-fuzz-") as folder:
        path = Path(folder) / f"damaged{first.suffix}"
        path.write_bytes(damaged(first.read_bytes(), n_lines, seed))
        tables = Tables(f"{folder}/tables")
        try:
            told = raw_input.pull(
                spark, tables, source=source, path=str(path), day=dt.date(2026, 3, 5), salt="s", caches=()
            )
        except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
            print(f"{source:20} {seed:4}  DEFECT: {type(error).__name__}: {str(error)[:300]}", flush=True)
            return False
    n_refused = sum(told.n_rejected.values())
    is_whole = told.n_rows == told.n_new + told.n_duplicates + n_refused
    print(
        f"{source:20} {seed:4} {told.n_rows:8} {told.n_new:8} {told.n_duplicates:7} {n_refused:8}"
        f" {time.monotonic() - began:6.1f}  {'ok' if is_whole else 'DEFECT: rows are lost'}",
        flush=True,
    )
    return is_whole


if __name__ == "__main__":
    sys.exit(main())
