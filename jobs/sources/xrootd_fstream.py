"""XRootD's f-stream: one access a file opened at a server, as its binary UDP datagrams tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES
from jobs.sources import base, urls
from jobs.sources.local import local_files
from prefetch.xcache.fstream_capture import Access, Fault, FstreamReader

# An access may be opened in one file and closed in the next.
READS_WHOLE = True
_BATCH_ROWS = 50_000
# No cache has smaller blocks; a prefetch of ours reads one byte of each by a vector read.
_LEAST_BLOCK_BYTES = 64 * 1024
_BYTES = ("size_bytes", "read", "readv", "written")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("input", "remote", "lfn", "fault", "told")),
        *((name, pa.int64()) for name in ("stod", "file_id", "user_id", "opened_us", "closed_us", "known_s")),
        *((name, pa.int64()) for name in _BYTES),
    ]
)


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Accesses of the datagrams at `path` (JSON lines: a local file, a folder or a glob of them).

    They are decoded in the driver, read as one stream in order of the files' names. An open without a close
    stays without end and bytes. A server's session number stands in for the user. Raises InputError.
    """
    reader = FstreamReader()
    rows = chain.from_iterable(_file_rows(reader, file) for file in local_files(path))
    left = (_row(access, Path(path).absolute().as_uri()) for access in reader.unfinished())
    events = pa.Table.from_batches(_batches(chain(rows, left)), schema=_SCHEMA)
    parsed = _rows(spark.createDataFrame(events), salt)
    return base.pulled(parsed, ACCESSES, "xrootd_fstream", reader.n_lost)


def _file_rows(reader: FstreamReader, file: Path) -> Iterator[dict[str, object]]:
    source = file.absolute().as_uri()
    return (_row(told, source) for told in reader.read(file))


def _batches(rows: Iterable[dict[str, object]]) -> Iterator[pa.RecordBatch]:
    stream = iter(rows)
    while batch := list(islice(stream, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(batch, schema=_SCHEMA)


def _row(told: Access | Fault, source: str) -> dict[str, object]:
    if isinstance(told, Fault):
        return {"input": source, "fault": told.reason, "told": told.sample}
    opened, closed = told.opened, told.closed
    return {
        "input": source,
        "remote": told.server[0],
        "stod": told.server[1],
        "lfn": opened.lfn,
        "file_id": opened.file_id,
        "user_id": opened.user_id,
        "opened_us": opened.at_us,
        "size_bytes": opened.size_bytes,
        "known_s": told.known_s,
        "closed_us": closed and closed.at_us,
        "read": closed and closed.read_bytes,
        "readv": closed and closed.readv_bytes,
        "written": closed and closed.write_bytes,
    }


def _rows(events: DataFrame, salt: str) -> DataFrame:
    is_prefetch = (F.col("read") == 0) & F.col("readv").between(
        1, F.ceil(F.col("size_bytes") / _LEAST_BLOCK_BYTES)
    )
    reason = base.first_reason(
        (F.col("fault").isNotNull(), F.col("fault")),
        (F.col("lfn") == "", "missing field: lfn"),
        (F.col("opened_us") < 0, "unparsable time: window"),
        *((~F.col(name).between(0, base.MOST_BYTES), f"impossible size: {name}") for name in _BYTES),
        ((F.col("read") == 0) & (F.col("readv") == 0) & (F.col("written") > 0), "not a read: write"),
        (is_prefetch, base.OURS),
    )
    sample = F.coalesce("told", F.concat_ws(" ", "remote", "stod", "file_id", "lfn"))
    events = base.with_parts(events.withColumn("path", urls.plain_path(F.col("lfn"))), F.col("path"))
    return base.parsed_rows(events, ACCESSES, _columns(salt), reason=reason, sample=sample)


def _columns(salt: str) -> dict[str, Column]:
    server = (F.col("remote"), F.col("stod"))
    session = F.concat_ws(":", *server, F.col("user_id"))
    return base.named(F.col("path")) | {
        "cache": F.regexp_replace("remote", ":[0-9]+$", ""),
        "accessed_at": F.timestamp_micros("opened_us"),
        "closed_at": F.timestamp_micros("closed_us"),
        "known_at": F.timestamp_seconds("known_s"),
        "size_bytes": F.col("size_bytes"),
        "read_bytes": F.col("read") + F.col("readv"),
        "n_reads": F.lit(1),
        "wall_s": (F.col("closed_us") - F.col("opened_us")) / 1e6,
        "origin": urls.source_host(F.col("lfn")),
        "user": base.hashed_user(F.when(F.col("user_id") > 0, session), salt),
        "source": F.lit("xrootd_fstream"),
        "event_id": base.hashed(*server, F.col("file_id")),
    }
