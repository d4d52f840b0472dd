"""XCache's own files about its files: the accesses that cinfo remembers, and what is on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES, CONTENTS
from features.times import as_of_label, day_label
from jobs.ingest.sources import base, urls
from jobs.ingest.sources.local import local_path
from prefetch.xcache import cinfo_rows

READS_WHOLE = True
STILL_OPEN = "still open: it counts when it has ended"
_TIMES = ("attach_s", "detach_s")
_BYTES = ("bytes_hit", "bytes_missed", "bytes_bypassed")


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Accesses that the cinfo files below folder `path` remember; the folder's name is the cache's.

    For a local folder, read in the driver. Raises InputError if there is none, or it is elsewhere.
    """
    folder = local_path(path)
    return accesses(files(spark, folder), folder.name, folder.absolute().as_uri())


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


def accesses(files: DataFrame, cache: str, source: str) -> base.Pulled:
    """The accesses of `files` (see there) as those of `cache`; `source` is the input's URI.

    An access is known when the cache writes it down, at its end. Its id is that of the cache, the file and
    its start, so that it counts once however often the namespace is scanned and whatever XCache merges.
    """
    rows = files.withColumn("record", F.explode_outer("records"))
    rows = rows.filter(F.col("record").isNotNull() | F.col("fault").isNotNull())
    rows = rows.select("name", "size_bytes", "fault", "told", "record.*", F.lit(source).alias("input"))
    rows = base.with_parts(rows.withColumn("path", urls.plain_path(F.col("name"))), F.col("path"))
    sample = F.coalesce("told", F.concat_ws(" ", "name", *_TIMES))
    parsed = base.parsed_rows(rows, ACCESSES, _columns(cache), reason=_reason(), sample=sample)
    return base.pulled(parsed, ACCESSES, "xcache_cinfo")


def contents(files: DataFrame, cache: str, as_of_s: int) -> DataFrame:
    """The inventory of `cache` in `files` as rows of the `contents` table at `as_of_s`."""
    held = base.with_parts(files.filter(F.col("fault").isNull()), F.col("name"))
    columns = base.named(F.col("name")) | {
        "last_detach": _moment("last_detach_s"),
        "scanned_at": F.timestamp_seconds(F.lit(as_of_s)),
        "day": F.lit(day_label(as_of_s)),
        "as_of": F.lit(as_of_label(as_of_s)),
        "cache": F.lit(cache),
    }
    names = [*CONTENTS.column_names, *CONTENTS.partition]
    return held.select(*(columns.get(name, F.col(name)).alias(name) for name in names))


def _reason() -> Column:
    return base.first_reason(
        (F.col("fault").isNotNull(), F.col("fault")),
        (F.col("detach_s").isNull(), STILL_OPEN),
        (F.col("is_ours"), base.OURS),
        *((_moment(name).isNull(), f"unparsable time: {name}") for name in _TIMES),
        *((~F.col(name).between(0, base.MOST_BYTES), f"impossible size: {name}") for name in _BYTES),
    )


def _columns(cache: str) -> dict[str, Column]:
    missed = F.col("bytes_missed") + F.col("bytes_bypassed")
    return base.named(F.col("path")) | {
        "cache": F.lit(cache),
        "accessed_at": _moment("attach_s"),
        "closed_at": _moment("detach_s"),
        "known_at": _moment("detach_s"),
        "size_bytes": F.col("size_bytes"),
        "read_bytes": F.col("bytes_hit") + missed,
        "bytes_hit": F.col("bytes_hit"),
        "bytes_missed": missed,
        "n_reads": F.col("n_reads"),
        "wall_s": F.col("wall_s").cast("double"),
        "origin": urls.source_host(F.col("name")),
        "source": F.lit("xcache_cinfo"),
        "event_id": base.hashed(F.lit(cache), F.col("name"), F.col("attach_s")),
    }


def _moment(name: str) -> Column:
    return base.timestamp(base.micros(F.col(name)))


@contextmanager
def _spool() -> Iterator[Path]:
    """A folder for as long as the block runs: a namespace is too much for memory."""
    folder = Path(tempfile.mkdtemp(prefix="cachecast-scan-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
