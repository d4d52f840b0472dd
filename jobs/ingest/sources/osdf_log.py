"""OSDF access log: lines of `[time] [Objectname:…] [Host:…] [Read:…] [Write:…]` and further fields."""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES
from jobs.ingest.sources import base, urls

_FIELDS = ("Objectname", "Site", "Server", "ServerType", "Read", "Write")


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Accesses at `path`, one row a line that read something; the time is when it was logged.

    `cache` is the server where the line says that it is one. Raises InputError if nothing is at `path`.
    """
    raw = base.read_lines(spark, path)
    line = F.col("value")
    raw = raw.withColumns(
        {
            "moment": F.regexp_extract(line, "^\\[([^\\]]*)\\]", 1).try_cast("timestamp"),
            **{
                name: F.nullif(F.regexp_extract(line, f"\\[{name}:([^\\]]*)\\]", 1), F.lit(""))
                for name in _FIELDS
            },
        }
    ).withColumns(
        {
            "n_read": base.count(F.col("Read")),
            "n_write": base.count(F.col("Write")),
            "path": urls.plain_path(F.col("Objectname")),
        }
    )
    raw = base.with_parts(raw, F.col("path"))
    rows = base.parsed_rows(raw, ACCESSES, _columns(), reason=_reason(), sample=line)
    return base.pulled(rows, ACCESSES, "osdf_log")


def _reason() -> Column:
    return base.first_reason(
        (~F.col("value").rlike("^\\[.*\\]\\s*$"), "malformed line"),
        (F.col("moment").isNull(), "unparsable time"),
        *((F.col(name).isNull(), f"missing field: {name}") for name in ("Objectname", "Read")),
        (F.col("n_read").isNull(), "unparsable number: Read"),
        (F.col("n_read") < 0, "negative size"),
        ((F.col("n_read") == 0) & (F.col("n_write") > 0), "not a read: write"),
    )


def _columns() -> dict[str, Column]:
    return base.named(F.col("path")) | {
        "site": F.col("Site"),
        "cache": F.when(F.lower("ServerType") == "cache", F.col("Server")),
        "origin": urls.source_host(F.col("Objectname")),
        "accessed_at": F.col("moment"),
        "known_at": F.col("moment"),
        "read_bytes": F.col("n_read"),
        "n_reads": F.lit(1),
        "source": F.lit("osdf_log"),
        "event_id": base.hashed(F.trim("value")),
    }
