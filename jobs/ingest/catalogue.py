"""Pull from a Rucio server: the files of listed datasets, or of those in use, into the files table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.errors import InputError
from features.schema import ACCESSES, FILES
from jobs.ingest.raw_input import PullSummary, Request
from jobs.ingest.sources import base, rucio_catalogue, rucio_files, rucio_server
from jobs.ingest.sources.local import files_at, is_local
from jobs.ingest.sources.site import Site
from jobs.ingest.spark_engine import merge, rows_of
from jobs.settings.sources import IN_USE
from jobs.spark import table_io
from jobs.store.tables import Tables
from prefetch.rucio.session import Session

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
        site = Site(day=day.isoformat())
        query = rucio_files.query(site, rucio_server.NAME)
        # They must stay until they are merged; their input is who named them.
        lines = base.read_lines(spark, folder).withColumn("input", F.lit(path))
        request = Request(rucio_server.NAME, path, site)
        return merge(spark, tables, request, lambda: rows_of(lines, query))


def _in_use(spark: SparkSession, tables: Tables, day: dt.date, days: int) -> DataFrame:
    since = day - dt.timedelta(days=days)
    accesses = table_io.read(spark, tables, ACCESSES, since=since.isoformat(), until=day.isoformat())
    return accesses.select(F.col("dataset").alias("name")).filter("name is not null").distinct().sort("name")


def _listed(spark: SparkSession, path: str) -> DataFrame:
    if is_local(path):
        lines = base.read_local_lines(spark, files_at(path), base.fail)
    else:
        lines = base.read_lines(spark, path)
    names = lines.select(F.trim(F.col("value").cast("string")).alias("name"))
    return names.filter((F.col("name") != "") & ~F.col("name").startswith(_COMMENT)).distinct()


def _names(wanted: DataFrame) -> Iterator[str]:
    return (row["name"] for row in wanted.toLocalIterator())
