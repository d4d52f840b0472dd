"""Popularity series of datasets: CSV of `dataset,week,accesses` or `date,dataset,n_accesses`.

Week w begins 7·w days after 1970-01-01: sources number weeks from a start of their own.
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES
from jobs.ingest.sources import base

_WEEKLY = ("dataset", "week", "accesses")
_DAILY = ("date", "dataset", "n_accesses")
_WEEK_S = 7 * 86400
_MAX_WEEK = 6000


def read(spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> base.Pulled:
    """Accesses at `path`, one row a dataset and week or day, with `n_reads` reads.

    `accessed_at` is the start of the unit, `known_at` its end. Raises InputError, SchemaError.
    """
    raw = base.read_csv(spark, path, _WEEKLY, _DAILY)
    weekly = set(_WEEKLY) <= set(raw.columns)
    unit, reads = (F.col("week"), F.col("accesses")) if weekly else (F.col("date"), F.col("n_accesses"))
    start_s = _week_s(unit) if weekly else _date_s(unit)
    raw = raw.withColumns({"start_s": start_s, "n": base.count(reads), "unit": unit, "reads": reads})
    raw = base.with_parts(raw, F.col("dataset"))
    columns = _columns(_WEEK_S if weekly else 86400)
    sample = F.coalesce("corrupt", F.concat_ws(",", F.col("dataset"), F.col("unit"), F.col("reads")))
    rows = base.parsed_rows(raw, ACCESSES, columns, reason=_reason(), sample=sample)
    return base.pulled(rows, ACCESSES, "popularity_series")


def _reason() -> Column:
    return base.first_reason(
        (F.col("corrupt").isNotNull(), "malformed CSV"),
        (F.col("dataset").isNull(), "missing field: dataset"),
        (F.col("start_s").isNull(), "unparsable time"),
        (F.col("n").isNull(), "unparsable number of accesses"),
        (F.col("n") < 0, "negative number of accesses"),
        (F.col("n") == 0, "no accesses"),
    )


def _columns(unit_s: int) -> dict[str, Column]:
    end = F.timestamp_seconds(F.col("start_s") + unit_s)
    return base.named(F.col("dataset")) | {
        "accessed_at": F.timestamp_seconds("start_s"),
        "closed_at": end,
        "known_at": end,
        "n_reads": F.col("n"),
        "source": F.lit("popularity_series"),
        "event_id": base.hashed(F.col("dataset"), F.col("start_s"), F.lit(unit_s)),
    }


def _week_s(text: Column) -> Column:
    week = base.count(text)
    return F.when(week.between(0, _MAX_WEEK), week * _WEEK_S)


def _date_s(text: Column) -> Column:
    date = F.when(text.rlike("^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), text.try_cast("date"))
    return F.unix_date(date).cast("long") * 86400
