"""XCache's g-stream captures: one access a `file_close`, as the cache itself tells it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES
from jobs.ingest.sources import base, urls
from jobs.ingest.sources.batches import table_of
from jobs.ingest.sources.local import local_files
from prefetch.xcache.gstream import PSEQ_MODULUS, CaptureReader, FileClose
from prefetch.xcache.numbering import Numberings

_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("lfn", "host", "inst", "site", "event_id", "remote")),
        *((name, pa.int64()) for name in ("size_bytes", "attach_t", "detach_t", "received_t")),
        *((name, pa.int64()) for name in ("b_hit", "b_miss", "b_bypass")),
        *((name, pa.bool_()) for name in ("is_ours", "malformed")),
        ("input", pa.string()),
    ]
)
_OF_EVENTS = [name for name in _SCHEMA.names if name not in {"remote", "malformed", "input"}]


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Accesses of the capture at `path` (a local file, a folder or a glob of them), one row a `file_close`.

    A capture is read in the driver: it holds what one cache sends in a cycle; several files are one stream,
    in order of their names. `bytes_missed` is what was not served from the cache, bypassed bytes included.
    Raises InputError if nothing is there.
    """
    numberings = Numberings(PSEQ_MODULUS)
    rows_of_files = chain.from_iterable(_file_rows(file, numberings) for file in local_files(path))
    rows = _rows(spark.createDataFrame(table_of(rows_of_files, _SCHEMA)))
    return base.pulled(rows, ACCESSES, "xcache_gstream", numberings.n_lost)


def _file_rows(file: Path, numberings: Numberings) -> Iterator[dict[str, object]]:
    """The capture's events, then one row for each thing in it that is none."""
    source, reader = file.absolute().as_uri(), CaptureReader(file, numberings)
    for event in reader.poll():
        yield _event(event, source)
    reader.close()
    yield from [{"malformed": True, "input": source}] * reader.n_malformed


def _event(record: FileClose, source: str) -> dict[str, object]:
    remote = record.remotes[0] if record.remotes else None
    return {name: getattr(record, name) for name in _OF_EVENTS} | {
        "remote": remote,
        "malformed": False,
        "input": source,
    }


def _rows(events: DataFrame) -> DataFrame:
    for name in ("attach_t", "detach_t", "received_t"):
        events = events.withColumn(f"{name}_us", base.micros(F.col(name)))
    reason = base.first_reason(
        (F.col("malformed"), "malformed record"),
        (F.col("is_ours"), base.OURS),
        (F.col("lfn") == "", "missing field: lfn"),
        *(
            (F.col(f"{name}_us").isNull(), f"unparsable time: {name}")
            for name in ("attach_t", "detach_t", "received_t")
        ),
        *(
            (F.col(name) > base.MOST_BYTES, f"impossible size: {name}")
            for name in ("b_hit", "b_miss", "b_bypass")
        ),
    )
    sample = F.concat_ws(" ", "lfn", "attach_t", "detach_t")
    events = base.with_parts(events.withColumn("path", urls.plain_path(F.col("lfn"))), F.col("path"))
    return base.parsed_rows(events, ACCESSES, _columns(), reason=reason, sample=sample)


def _columns() -> dict[str, Column]:
    missed = F.col("b_miss") + F.col("b_bypass")
    return base.named(F.col("path")) | {
        "site": F.nullif("site", F.lit("")),
        "cache": F.coalesce(F.nullif("inst", F.lit("")), F.nullif("site", F.lit("")), F.col("host")),
        "accessed_at": base.timestamp(F.col("attach_t_us")),
        "closed_at": base.timestamp(F.col("detach_t_us")),
        "known_at": base.timestamp(F.col("received_t_us")),
        "size_bytes": F.col("size_bytes"),
        "read_bytes": F.col("b_hit") + missed,
        "bytes_hit": F.col("b_hit"),
        "bytes_missed": missed,
        "n_reads": F.lit(1),
        "wall_s": (F.col("detach_t") - F.col("attach_t")).cast("double"),
        "origin": F.coalesce("remote", urls.source_host(F.col("lfn"))),
        "source": F.lit("xcache_gstream"),
        "event_id": F.col("event_id"),
    }
