"""Rucio's reply to a bulk file listing (`POST /dids/bulkfiles`-like), one JSON object a line.

Fields: parent_scope, parent_name (the dataset), scope, name, bytes, adler32; optional created_at (ISO or
seconds), known_at and updated_at (the same), rses (a list of names), datatype and campaign (of the dataset,
where the name does not tell them), and refused (why there is no file of this name; `rucio_server` notes it).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import FILES
from jobs.ingest.sources import base

_FIELDS = (
    *("parent_scope", "parent_name", "scope", "name", "bytes", "adler32"),
    *("created_at", "known_at", "updated_at", "rses", "datatype", "campaign", "refused"),
)


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Files at `path`, one row a line; a file of several datasets comes several times.

    `known_at` is the field, else created_at, else 00:00 UTC of `day`. `updated_at`, when the listing was
    made, is the field, else the field known_at, else 00:00 UTC of `day`; never before known_at. Raises
    InputError if nothing is at `path`.
    """
    return of_lines(base.read_lines(spark, path), "rucio_files", day)


def of_lines(lines: DataFrame, source: str, day: str) -> base.Pulled:
    """Files of `lines` (value, input), pulled as `source`; see `read`."""
    raw = base.json_fields(lines, _FIELDS)
    raw = raw.withColumns(
        {
            "size": base.count(F.col("bytes")),
            "created": _moment(F.col("created_at")),
            "known": _moment(F.col("known_at")),
            "updated": _moment(F.col("updated_at")),
        }
    )
    raw = base.with_parts(raw, F.col("name"), F.col("scope"))
    rows = base.parsed_rows(raw, FILES, _columns(day), reason=_reason(day), sample=F.col("value"))
    return base.pulled(rows, FILES, source)


def _reason(day: str) -> Column:
    return base.first_reason(
        (F.col("malformed"), "malformed JSON"),
        (F.col("refused").isNotNull(), F.col("refused")),
        *((F.col(name).isNull(), f"missing field: {name}") for name in ("scope", "name", "bytes")),
        (F.col("size").isNull(), "unparsable size"),
        (F.col("size") < 0, "negative size"),
        (F.col("created_at").isNotNull() & F.col("created").isNull(), "unparsable time: created_at"),
        (F.col("known_at").isNotNull() & F.col("known").isNull(), "unparsable time: known_at"),
        (F.col("updated_at").isNotNull() & F.col("updated").isNull(), "unparsable time: updated_at"),
        (_known_at(day).isNull(), "missing field: known_at"),
    )


def _columns(day: str) -> dict[str, Column]:
    named = base.named(F.col("name"), F.col("scope"))
    # In Rucio a CMS block (`/A/B/C#id`) is the parent; popularity is known by the dataset it belongs to.
    dataset = F.regexp_replace("parent_name", "#.*$", "")
    parent = F.concat(F.coalesce("parent_scope", "scope"), F.lit(":"), dataset)
    checksum = F.lower("adler32")
    return named | {
        "dataset": F.coalesce(parent, named["dataset"]),
        "tier": F.coalesce(named["tier"], "datatype"),
        "campaign": F.coalesce(named["campaign"], "campaign"),
        "size_bytes": F.col("size"),
        "adler32": F.when(checksum.rlike("^[0-9a-f]{8}$"), checksum),
        "created_at": F.col("created"),
        "origins": F.sort_array(F.array_distinct(F.from_json("rses", "array<string>"))),
        "known_at": _known_at(day),
        "updated_at": F.greatest(F.coalesce("updated", "known", _midnight(day)), _known_at(day)),
    }


def _moment(text: Column) -> Column:
    number = text.try_cast("double")
    return F.when(number.isNotNull(), base.timestamp(base.micros(text))).otherwise(text.try_cast("timestamp"))


def _known_at(day: str) -> Column:
    return F.coalesce("known", "created", _midnight(day))


def _midnight(day: str) -> Column:
    return F.lit(day or None).cast("timestamp")
