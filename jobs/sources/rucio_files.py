"""Rucio's reply to a bulk file listing (`POST /dids/bulkfiles`-like), one JSON object a line.

Fields: parent_scope, parent_name (the dataset), scope, name, bytes, adler32; optional created_at (ISO or
seconds), known_at (the same) and rses (a list of names).
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from features.schema import FILES
from features.spark.names import part
from jobs.sources import base

_FIELDS = (
    *("parent_scope", "parent_name", "scope", "name", "bytes", "adler32"),
    *("created_at", "known_at", "rses"),
)


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Files at `path`, one row a line; a file of several datasets comes several times.

    `known_at` is the field, else created_at, else 00:00 UTC of `day`. Raises InputError if nothing is
    at `path`.
    """
    raw = base.json_fields(base.read_lines(spark, path), _FIELDS)
    raw = raw.withColumns(
        {
            "size": base.count(F.col("bytes")),
            "created": _moment(F.col("created_at")),
            "known": _moment(F.col("known_at")),
        }
    )
    raw = base.with_parts(raw, F.col("name"), F.col("scope"))
    rows = base.parsed_rows(raw, FILES, _columns(day), reason=_reason(day), sample=F.col("value"))
    return base.pulled(rows, FILES, "rucio_files")


def _reason(day: str) -> Column:
    return base.first_reason(
        (F.col("malformed"), "malformed JSON"),
        *((F.col(name).isNull(), f"missing field: {name}") for name in ("scope", "name", "bytes")),
        (F.col("size").isNull(), "unparsable size"),
        (F.col("size") < 0, "negative size"),
        (F.col("created_at").isNotNull() & F.col("created").isNull(), "unparsable time: created_at"),
        (F.col("known_at").isNotNull() & F.col("known").isNull(), "unparsable time: known_at"),
        (F.coalesce("known", "created", _midnight(day)).isNull(), "missing field: known_at"),
    )


def _columns(day: str) -> dict[str, Column]:
    named = base.named(F.col("name"), F.col("scope"))
    # In Rucio a CMS block (`/A/B/C#id`) is the parent; popularity is known by the dataset it belongs to.
    dataset = F.regexp_replace("parent_name", "#.*$", "")
    parent = F.concat(F.coalesce("parent_scope", "scope"), F.lit(":"), dataset)
    checksum = F.lower("adler32")
    return named | {
        "dataset": F.coalesce(parent, named["dataset"]),
        "campaign": part(F.col("parts"), "campaign"),
        "size_bytes": F.col("size"),
        "adler32": F.when(checksum.rlike("^[0-9a-f]{8}$"), checksum),
        "created_at": F.col("created"),
        "origins": F.sort_array(F.array_distinct(F.from_json("rses", "array<string>"))),
        "known_at": F.coalesce("known", "created", _midnight(day)),
    }


def _moment(text: Column) -> Column:
    number = text.try_cast("decimal(16,6)")
    return F.when(number.isNotNull(), base.timestamp(base.seconds(text))).otherwise(
        text.try_cast("timestamp")
    )


def _midnight(day: str) -> Column:
    return F.lit(day or None).cast("timestamp")
