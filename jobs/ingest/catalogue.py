"""Pull from a Rucio server: the files of listed datasets, or of those in use, into the files table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.errors import InputError
from features.schema import ACCESSES, FILES
from jobs.ingest.raw_input import PullSummary, merge
from jobs.ingest.sources import base, rucio_catalogue, rucio_server
from jobs.spark import table_io
from jobs.store.tables import Tables
from prefetch.rucio.session import Session

IN_USE = "in-use"
_COMMENT = "#"


def pull(
    spark: SparkSession, tables: Tables, *, session: Session, path: str, day: dt.date, in_use_days: int
) -> PullSummary:
    """Merge the files of the datasets at `path` into the files table; `day`: that of rejected rows.

    `path`: a file (or a glob) with one DID or `scope:pattern` per line, or `IN_USE`: the datasets that were
    read in the `in_use_days` up to `day`, by the accesses table. Raises InputError if it names
    none, ServiceError (nothing is written then), StaleInputError without accesses, ConflictError.
    """
    wanted = _in_use(spark, tables, day, in_use_days) if path == IN_USE else _listed(spark, path)
    if wanted.isEmpty():
        raise InputError(
            f"{path} names no dataset; give lines like mc23_13p6TeV:mc23_13p6TeV.1.X.AOD.e1, or in-use"
        )
    with tables.scratch(FILES) as scratch:
        # Fetched before the lock of pulls is taken, because a large catalogue takes long.
        folder = f"{scratch}/answers"
        rucio_server.fetch(spark, rucio_catalogue.rows(session, _names(wanted)), folder, day=day.isoformat())
        return merge(
            spark,
            tables,
            lambda: rucio_server.read(spark, folder, input=path, day=day.isoformat()),
            source=rucio_server.NAME,
            day=day,
        )


def _in_use(spark: SparkSession, tables: Tables, day: dt.date, days: int) -> DataFrame:
    since = day - dt.timedelta(days=days)
    accesses = table_io.read(spark, tables, ACCESSES, since=since.isoformat(), until=day.isoformat())
    return accesses.select(F.col("dataset").alias("name")).filter("name is not null").distinct().sort("name")


def _listed(spark: SparkSession, path: str) -> DataFrame:
    lines = base.read_lines(spark, path)
    return lines.select(F.trim("value").alias("name")).filter(~F.col("name").startswith(_COMMENT)).distinct()


def _names(wanted: DataFrame) -> Iterator[str]:
    return (row["name"] for row in wanted.toLocalIterator())
