"""The files of a cache's namespace, in Spark: walked once, for its inventory and its remembered accesses."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import CONTENTS
from features.times import as_of_label, day_label
from jobs.ingest.sources import base
from prefetch.xcache import cinfo_rows


def files(spark: SparkSession, namespace: Path, spaces: Sequence[Path] = ()) -> DataFrame:
    """One row a cinfo below `namespace`, with the columns of `cinfo_rows.SCHEMA`, walked once.

    `spaces`: folders that links of the namespace may lead to. Raises InputError if there is no such folder.
    """
    with _spool() as spool:
        with pq.ParquetWriter(spool / "files.parquet", cinfo_rows.SCHEMA, compression="zstd") as writer:
            for batch in cinfo_rows.batches(namespace, spaces):
                writer.write_batch(batch)
        rows = spark.read.parquet(str(spool))
        return rows.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)


def contents(files: DataFrame, cache: str, as_of_s: int) -> DataFrame:
    """The inventory of `cache` in `files` as rows of the `contents` table at `as_of_s`."""
    held = base.with_parts(files.filter(F.col("fault").isNull()), F.col("name"))
    columns = base.named(F.col("name")) | {
        "last_detach": base.timestamp(base.micros(F.col("last_detach_s"))),
        "scanned_at": F.timestamp_seconds(F.lit(as_of_s)),
        "day": F.lit(day_label(as_of_s)),
        "as_of": F.lit(as_of_label(as_of_s)),
        "cache": F.lit(cache),
    }
    names = [*CONTENTS.column_names, *CONTENTS.partition]
    return held.select(*(columns.get(name, F.col(name)).alias(name) for name in names))


@contextmanager
def _spool() -> Iterator[Path]:
    """A folder for as long as the block runs: a namespace is too much for memory."""
    folder = Path(tempfile.mkdtemp(prefix="cachecast-scan-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
