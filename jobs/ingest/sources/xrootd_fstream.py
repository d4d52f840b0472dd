"""XRootD's f-stream: one access a file opened at a server, as its binary UDP datagrams tell."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES
from features.spark.schema import struct_type
from features.times import day_label
from jobs.ingest.merging import merged_accesses
from jobs.ingest.sources import Earlier, base, urls
from jobs.ingest.sources.batches import table_of
from jobs.ingest.sources.local import local_files, local_path
from prefetch.xcache.fstream import Closed
from prefetch.xcache.fstream_capture import LONE_CLOSE, Access, Fault, FstreamReader, LoneClose, Server

# An access may be opened in one file and closed in the next.
READS_WHOLE = True
# An open is looked for in the days before its close that late records re-open.
_LONGEST_OPEN_S = 3 * 86400
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


def read(
    spark: SparkSession, path: str, *, salt: str = "", day: str = "", earlier: Earlier | None = None
) -> base.Pulled:
    """Accesses of the datagrams at `path` (JSON lines: a local file, a folder or a glob of them).

    They are decoded in the driver, read as one stream in order of the files' names. An open without a close
    stays without end and bytes, until a later pull brings the close: it ends the open that `earlier` tells.
    So does one that overtook its open. A server's session number stands in for the user. Raises InputError.
    """
    reader = FstreamReader()
    rows = chain.from_iterable(_file_rows(reader, file) for file in local_files(path))
    left = (_row(access, local_path(path).absolute().as_uri()) for access in reader.unfinished())
    events = table_of(chain(rows, left), _SCHEMA)
    is_lone = pc.fill_null(pc.equal(events["fault"], LONE_CLOSE), False)
    parsed = _rows(spark.createDataFrame(events.filter(pc.invert(is_lone))), salt)
    lone = events.filter(is_lone)
    if lone.num_rows:
        opened = merged_accesses(base.accesses_of(parsed), _opened(lone, earlier))
        parsed = parsed.unionByName(_ended(spark.createDataFrame(lone), opened))
    return base.pulled(parsed, ACCESSES, "xrootd_fstream", reader.n_lost)


def _opened(lone: pa.Table, earlier: Earlier | None) -> DataFrame | None:
    """The accesses that were opened in the days before the closes in `lone`."""
    times = pc.min_max(lone["closed_us"]).as_py()
    first, last = (max(0, times[end] // 1_000_000) for end in ("min", "max"))
    since, until = max(0, first - _LONGEST_OPEN_S), min(last, base.LATEST_S)
    return None if earlier is None else earlier(day_label(since), day_label(until))


def _ended(closes: DataFrame, opened: DataFrame) -> DataFrame:
    """`closes` as accesses, each with what `opened` (unique by event_id) tells of its open; else refused.

    An open that has ended is ended by the same close alone, told once more.
    """
    schema = struct_type(ACCESSES)
    opens = opened.select("event_id", F.struct(*schema.fieldNames()).alias("open"))
    ended = closes.withColumn("event_id", _event_id()).join(opens, "event_id", how="left")
    columns = {name: F.col(f"open.{name}") for name in schema.fieldNames()}
    is_its_own = columns["closed_at"].isNull() | (columns["closed_at"] == F.timestamp_micros("closed_us"))
    is_lone = ~F.coalesce(is_its_own & F.col("open").isNotNull(), F.lit(False))
    reason = base.first_reason((is_lone, F.col("fault")), *_impossible("read", "readv"))
    return base.parsed_rows(
        ended, ACCESSES, columns | _at_close(columns["accessed_at"]), reason=reason, sample=F.col("told")
    )


def _file_rows(reader: FstreamReader, file: Path) -> Iterator[dict[str, object]]:
    source = file.absolute().as_uri()
    return (_row(record, source) for record in reader.read(file))


def _row(record: Access | Fault, source: str) -> dict[str, object]:
    if isinstance(record, LoneClose):
        return {"fault": record.reason, "told": record.sample, **_close(record.server, record.closed)} | {
            "input": source,
            "file_id": record.closed.file_id,
            "known_s": record.known_s,
        }
    if isinstance(record, Fault):
        return {"input": source, "fault": record.reason, "told": record.sample}
    opened = record.opened
    return {
        "input": source,
        "lfn": opened.lfn,
        "file_id": opened.file_id,
        "user_id": opened.user_id,
        "opened_us": opened.at_us,
        "size_bytes": opened.size_bytes,
        "known_s": record.known_s,
        **_close(record.server, record.closed),
    }


def _close(server: Server, closed: Closed | None) -> dict[str, object]:
    return {
        "remote": server[0],
        "stod": server[1],
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
        *_impossible(*_BYTES),
        ((F.col("read") == 0) & (F.col("readv") == 0) & (F.col("written") > 0), "not a read: write"),
        (is_prefetch, base.OURS),
    )
    sample = F.coalesce("told", F.concat_ws(" ", "remote", "stod", "file_id", "lfn"))
    events = base.with_parts(events.withColumn("path", urls.plain_path(F.col("lfn"))), F.col("path"))
    return base.parsed_rows(events, ACCESSES, _columns(salt), reason=reason, sample=sample)


def _impossible(*names: str) -> list[tuple[Column, str]]:
    return [(~F.col(name).between(0, base.MOST_BYTES), f"impossible size: {name}") for name in names]


def _columns(salt: str) -> dict[str, Column]:
    session = F.concat_ws(":", "remote", "stod", "user_id")
    accessed_at = F.timestamp_micros("opened_us")
    return base.named(F.col("path")) | {
        "cache": F.regexp_replace("remote", ":[0-9]+$", ""),
        "accessed_at": accessed_at,
        "size_bytes": F.col("size_bytes"),
        "n_reads": F.lit(1),
        **_at_close(accessed_at),
        "origin": urls.source_host(F.col("lfn")),
        "user": base.hashed_user(F.when(F.col("user_id") > 0, session), salt),
        "source": F.lit("xrootd_fstream"),
        "event_id": _event_id(),
    }


def _at_close(accessed_at: Column) -> dict[str, Column]:
    """What the close tells of an access that began at `accessed_at`; null where there is none."""
    return {
        "closed_at": F.timestamp_micros("closed_us"),
        "known_at": F.timestamp_seconds("known_s"),
        "read_bytes": F.col("read") + F.col("readv"),
        "wall_s": (F.col("closed_us") - F.unix_micros(accessed_at)) / 1e6,
    }


def _event_id() -> Column:
    return base.hashed(F.col("remote"), F.col("stod"), F.col("file_id"))
