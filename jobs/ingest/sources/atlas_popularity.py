"""ATLAS's daily popularity roll-up: TSV, one row a day, user, dataset, RSE and kind of event.

Columns in this order, or as a header line tells. Of no use here: project, datatype, run_number, stream_name,
prod_step, version, length, distinct_files and panda_jobs.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.errors import SchemaError
from features.schema import ACCESSES
from jobs.ingest.sources import base, rucio_events

_COLUMNS = (
    *("timestamp", "user", "scope", "name", "project", "datatype", "run_number", "stream_name", "prod_step"),
    *("version", "eventtype", "rse", "bytes", "length", "ops", "file_ops", "distinct_files", "panda_jobs"),
    "created_at",
)
_NEEDED = ("timestamp", "scope", "name", "eventtype", "bytes", "ops", "file_ops", "created_at")
_NUMBERS = ("bytes", "ops", "file_ops")
_USER_BUCKETS = 64


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Accesses of the roll-up at `path`, one row a line; `did` and `dataset` are the dataset.

    `n_reads` is file_ops, so that it counts the reads of files as every other source does; ops where it is 0
    or empty. `accessed_at` is timestamp (a day), `known_at` created_at. Raises InputError if nothing is at
    `path`, SchemaError if a header lacks columns.
    """
    lines = base.read_lines(spark, path)
    first = lines.select("value").first()
    header = tuple(first.value.split("\t")) if first is not None else ()
    names = header if "timestamp" in header else _COLUMNS
    if missing := sorted(set(_NEEDED) - set(names)):
        raise SchemaError(f"{path}: columns {missing} are missing; there are {list(names)}")
    raw = _fields(lines.filter(F.col("value") != "\t".join(names)), names)
    raw = base.with_parts(raw, F.col("name"), F.col("scope"))
    # Without the user, whom a sample must not show.
    sample = F.concat_ws("\t", *(F.coalesce(n, F.lit("")) for n in (*_NEEDED[:4], "rse", *_NEEDED[4:])))
    rows = base.parsed_rows(raw, ACCESSES, _columns(salt), reason=_reason(), sample=sample)
    return base.pulled(rows, ACCESSES, "atlas_popularity")


def _fields(lines: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """Each of _COLUMNS as a string (null: empty or not there), and what is parsed of them."""
    fields = lines.withColumn("fields", F.split("value", "\t", -1))
    texts = {
        name: F.nullif(F.trim(F.get("fields", names.index(name))), F.lit(""))
        if name in names
        else F.lit(None).cast("string")
        for name in _COLUMNS
    }
    raw = fields.select(
        "input",
        (F.size("fields") != len(names)).alias("malformed"),
        *(text.alias(name) for name, text in texts.items()),
    )
    moments = {f"{name}_at": _moment(F.col(name)) for name in ("timestamp", "created_at")}
    return raw.withColumns(moments | {f"n_{name}": base.count(F.col(name)) for name in _NUMBERS}).withColumn(
        "n_reads", F.coalesce(F.nullif("n_file_ops", F.lit(0)), "n_ops")
    )


def _reason() -> Column:
    needed = ("timestamp", "scope", "name", "eventtype", "created_at")
    return base.first_reason(
        (F.col("malformed"), "malformed TSV"),
        *((F.col(name).isNull(), f"missing field: {name}") for name in needed),
        rucio_events.not_a_read(F.col("eventtype")),
        *((F.col(f"{name}_at").isNull(), f"unparsable time: {name}") for name in ("timestamp", "created_at")),
        *((F.col(n).isNotNull() & F.col(f"n_{n}").isNull(), f"unparsable number: {n}") for n in _NUMBERS),
        *((F.col(f"n_{n}") < 0, f"negative number: {n}") for n in _NUMBERS),
        (F.coalesce("n_reads", F.lit(0)) == 0, "no accesses"),
    )


def _columns(salt: str) -> dict[str, Column]:
    named = base.named(F.col("name"), F.col("scope"))
    return named | {
        "dataset": named["did"],
        "accessed_at": F.col("timestamp_at"),
        "known_at": F.col("created_at_at"),
        "read_bytes": F.col("n_bytes"),
        "n_reads": F.col("n_reads"),
        "origin": F.col("rse"),
        "user": base.hashed_user(F.col("user"), salt),
        "activity": rucio_events.activity(F.col("eventtype"), F.col("user")),
        "source": F.lit("atlas_popularity"),
        "event_id": _event_id(),
    }


def _event_id() -> Column:
    """Of all that the row tells but created_at. The user only by one of 64 buckets: an unsalted hash of the
    whole name could be looked up, and a salted one would make another event of the row under another salt.
    """
    identifying = [F.col(name) for name in _COLUMNS if name not in ("user", "created_at")]
    return base.hashed(*identifying, F.pmod(F.xxhash64("user"), F.lit(_USER_BUCKETS)))


def _moment(text: Column) -> Column:
    """Of seconds since 1970, or of a date or time in UTC where it names no zone."""
    number = text.try_cast("double").isNotNull()
    return F.when(number, base.timestamp(base.micros(text))).otherwise(text.try_cast("timestamp"))
