"""File opens of an OSDF cache, decoded from XRootD's f-stream: CSV with a header.

Columns: time (open), win_beg, win_end (the packet's window), lfn, size, user_id, file_id, read, readv,
close_time. The last three are empty while no close was seen.
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES
from jobs.ingest.sources import base, urls

_COLUMNS = ("time", "win_end", "lfn", "size", "user_id", "file_id", "read", "readv", "close_time")
_NUMBERS = ("size", "read", "readv")


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Accesses at `path`, one row a file open. A server's session number stands in for the user.

    `known_at` is the end of the packet's window, or the close if that is later. Raises InputError,
    SchemaError.
    """
    raw = base.read_csv(spark, path, _COLUMNS)
    sample = F.coalesce(
        "corrupt", F.concat_ws(",", *(F.coalesce(F.col(name), F.lit("")) for name in _COLUMNS))
    )
    raw = raw.withColumns(
        {
            "path": urls.plain_path(F.col("lfn")),
            "open_us": base.micros(F.col("time")),
            "end_us": base.micros(F.col("win_end")),
            "close_us": base.micros(F.col("close_time")),
            **{f"n_{name}": base.count(F.col(name)) for name in _NUMBERS},
        }
    )
    raw = base.with_parts(raw, F.col("path"))
    rows = base.parsed_rows(raw, ACCESSES, _columns(salt), reason=_reason(), sample=sample)
    return base.pulled(rows, ACCESSES, "osdf_accesses")


def _reason() -> Column:
    return base.first_reason(
        (F.col("corrupt").isNotNull(), "malformed CSV"),
        *((F.col(name).isNull(), f"missing field: {name}") for name in ("time", "win_end", "lfn", "file_id")),
        (F.col("open_us").isNull(), "unparsable time: time"),
        (F.col("end_us").isNull(), "unparsable time: win_end"),
        (F.col("close_time").isNotNull() & F.col("close_us").isNull(), "unparsable time: close_time"),
        *((F.col(n).isNotNull() & F.col(f"n_{n}").isNull(), f"unparsable number: {n}") for n in _NUMBERS),
        *((F.col(f"n_{n}") < 0, "negative size") for n in _NUMBERS),
        *((F.col(f"n_{n}") > base.MOST_BYTES, f"impossible size: {n}") for n in _NUMBERS),
    )


def _columns(salt: str) -> dict[str, Column]:
    return base.named(F.col("path")) | {
        "cache": urls.cache_host(F.col("lfn")),
        "accessed_at": base.timestamp(F.col("open_us")),
        "closed_at": base.timestamp(F.col("close_us")),
        "known_at": base.timestamp(F.greatest("end_us", "close_us")),
        "size_bytes": F.col("n_size"),
        "read_bytes": F.col("n_read") + F.coalesce("n_readv", F.lit(0)),
        "n_reads": F.lit(1),
        "wall_s": (F.col("close_us") - F.col("open_us")) / 1e6,
        "origin": urls.source_host(F.col("lfn")),
        "user": base.hashed_user(F.col("user_id"), salt),
        "source": F.lit("osdf_accesses"),
        "event_id": base.hashed(
            F.col("lfn"), F.col("user_id"), F.col("file_id"), base.seconds_text(F.col("open_us"))
        ),
    }
