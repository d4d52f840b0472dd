"""Walk a cache's namespace: its inventory into the contents table, what its files remember into accesses.

Runs on the cache's host. Walking twice changes nothing, unless the cache changed.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import CONTENTS
from features.times import as_of_label, day_label
from jobs.ingest import input as pull
from jobs.ingest.sources import xcache_cinfo
from jobs.spark import table_io as spark_io
from jobs.store.schema_check import checked_key
from jobs.store.tables import Tables


@dataclasses.dataclass(frozen=True)
class ScanSummary:
    """One cache's inventory at `as_of`, and the accesses its files told.

    `open`: files a client holds open; `new_accesses`: rows that changed the accesses table. `n_rejected`:
    files and access records left out, by reason.
    """

    cache: str
    as_of: str
    files: int
    bytes_on_disk: int
    complete: int
    open: int
    new_accesses: int
    known_accesses: int
    n_rejected: Mapping[str, int]
    days: tuple[str, ...]


def run(
    spark: SparkSession,
    tables: Tables,
    *,
    namespace: Path,
    cache: str,
    as_of_s: int,
    spaces: Sequence[Path] = (),
) -> ScanSummary:
    """Replace the contents of `cache` at `as_of_s`, and merge the accesses.

    `spaces`: folders that links of the namespace may lead to. Raises SchemaError for a name no cache can
    have, InputError if there is no folder `namespace`, ConflictError if a pull is at work on these tables.
    """
    key = checked_key(CONTENTS, (day_label(as_of_s), as_of_label(as_of_s), cache))
    files = xcache_cinfo.files(spark, namespace, spaces)
    told = pull.merge(
        spark,
        tables,
        lambda: xcache_cinfo.accesses(files, cache, namespace.absolute().as_uri()),
        source="xcache_cinfo",
        day=day_of(as_of_s),
    )
    spark_io.replace(xcache_cinfo.contents(files, cache, as_of_s), tables, CONTENTS, cover=[key])
    return _summary(files, told, cache, as_of_label(as_of_s))


def day_of(at_s: int) -> dt.date:
    """The UTC day of seconds since 1970."""
    return dt.datetime.fromtimestamp(at_s, dt.UTC).date()


def _summary(files: DataFrame, told: pull.PullSummary, cache: str, as_of: str) -> ScanSummary:
    held = files.filter(F.col("fault").isNull())
    counted = held.agg(
        F.count("*").alias("files"),
        F.coalesce(F.sum("bytes_on_disk"), F.lit(0)).alias("bytes_on_disk"),
        F.count_if("complete").alias("complete"),
        F.count_if("open").alias("open"),
    ).first()
    assert counted is not None
    return ScanSummary(
        cache=cache,
        as_of=as_of,
        **counted.asDict(),
        new_accesses=told.n_new,
        known_accesses=told.n_duplicates,
        n_rejected=told.n_rejected,
        days=told.days,
    )
