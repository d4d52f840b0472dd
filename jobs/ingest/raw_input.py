"""Pull one raw input into the tables: accesses by day, files by did, and rejected rows with their reason.

Pulling the same input twice changes nothing. Late rows re-open their day. Of rows with the same key one
stays, and which one does not depend on their order (see `merging`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES, FILES
from jobs.ingest.merging import merged_accesses, merged_files
from jobs.ingest.sources import Reader, site_reader
from jobs.ingest.sources.base import Pulled, readable
from jobs.spark import table_io
from jobs.store.rejects import replace_rejects
from jobs.store.tables import Tables

_KEEP = StorageLevel.DISK_ONLY  # in memory, millions of rows in a few partitions exceed the heap
LATE_DAYS = 3
"""A record published more than this many days after its end is late."""


@dataclasses.dataclass(frozen=True)
class PullSummary:
    """Counts of the rows read: n_rows = n_new + n_duplicates + the sum of n_rejected.

    `n_new`: rows that changed a table; `n_late`: those of them that were published more than LATE_DAYS after
    their end, too late for the features of their days. `n_rejected`: by reason. `days`: days of accesses that
    changed. `n_lost`: records that the source reports as missing, not part of `n_rows`. `n_unchanged`: inputs
    left out because they were pulled before (see `incremental`). `n_removed`: captures deleted because they
    are older than `[collect] keep`; `n_not_removed`: those that this account may not delete.
    """

    n_rows: int
    n_new: int
    n_duplicates: int
    n_rejected: Mapping[str, int]
    days: tuple[str, ...]
    n_lost: int
    n_unchanged: int = 0
    n_late: int = 0
    n_removed: int = 0
    n_not_removed: int = 0


class Take(Protocol):
    """Merges the inputs at `path`, or some of them, read by `read`."""

    def __call__(
        self, spark: SparkSession, tables: Tables, read: Reader, *, source: str, path: str, day: dt.date
    ) -> PullSummary: ...


def everything(
    spark: SparkSession, tables: Tables, read: Reader, *, source: str, path: str, day: dt.date
) -> PullSummary:
    """Merge all inputs at `path`."""
    with readable(path):
        return merge(spark, tables, lambda: read(spark, path), source=source, day=day)


def pull(
    spark: SparkSession,
    tables: Tables,
    *,
    source: str,
    path: str,
    day: dt.date,
    salt: str = "",
    caches: Sequence[str] = (),
    take: Take = everything,
) -> PullSummary:
    """Merge the input at `path`, read by `source`, into the tables; `day`: that of rejected rows.

    `caches`: hosts and domains of caches, see `jobs.ingest.sources.Read`. `take`: all inputs, or the new
    ones (`incremental.only_new`).

    Raises ConfigError for an unknown source, InputError and SchemaError for an unusable input (nothing is
    written then), ConflictError if another pull is at work on these tables.
    """
    of_source = functools.partial(earlier, spark, tables, source)
    read = site_reader(source, salt=salt, day=day.isoformat(), caches=caches, earlier=of_source)
    return take(spark, tables, read, source=source, path=path, day=day)


def earlier(spark: SparkSession, tables: Tables, source: str, since: str, until: str) -> DataFrame | None:
    """The accesses of `source` on the days `since` … `until`, or None; see `jobs.ingest.sources.Earlier`."""
    head = tables.head(ACCESSES)
    chosen = head.select(since=since, until=until)
    rows = table_io.read_partitions(spark, head, chosen) if chosen else None
    return None if rows is None else rows.where(F.col("source") == source)


def merge(
    spark: SparkSession, tables: Tables, read: Callable[[], Pulled], *, source: str, day: dt.date
) -> PullSummary:
    """Merge the rows of `read`, which is called under the lock of pulls; see `pull`."""
    with tables.exclusive("pull"):
        pulled = read()
        pulled.parsed.persist(_KEEP)
        try:
            return _merge(spark, tables, pulled, source, day.isoformat())
        finally:
            pulled.parsed.unpersist()


def _merge(spark: SparkSession, tables: Tables, pulled: Pulled, source: str, day: str) -> PullSummary:
    inputs = pulled.parsed.groupBy("input").agg(F.count("*").alias("n_rows")).toArrow()
    n_rows = pc.sum(inputs["n_rows"]).as_py() or 0
    rejects = pulled.rejects.toArrow()
    changes = _Changes()
    if pulled.accesses is not None:
        changes = _merge_accesses(spark, tables, pulled.accesses)
    if pulled.files is not None:
        changes = _merge_files(spark, tables, pulled.files)
    replace_rejects(tables, source, day, inputs["input"].combine_chunks(), rejects)
    by_reason = rejects.group_by("reason").aggregate([("n_rows", "sum")]).sort_by("reason").to_pylist()
    n_rejected = {row["reason"]: row["n_rows_sum"] for row in by_reason}
    n_duplicates = n_rows - changes.n_new - sum(n_rejected.values())
    return PullSummary(
        *(n_rows, changes.n_new, n_duplicates, n_rejected, changes.days, pulled.n_lost), n_late=changes.n_late
    )


class _Changes(NamedTuple):
    """Counts of a merge into one table."""

    n_new: int = 0
    n_late: int = 0
    days: tuple[str, ...] = ()


def _merge_accesses(spark: SparkSession, tables: Tables, rows: DataFrame) -> _Changes:
    days = {row["day"] for row in rows.select("day").distinct().toLocalIterator()}
    base = tables.head(ACCESSES)
    chosen = {key: part for key, part in base.partitions.items() if key[0] in days}
    old = table_io.read_partitions(spark, base, chosen) if chosen else None
    merged = merged_accesses(rows, old).persist(_KEEP)
    is_late = F.col("known_at") > F.coalesce("closed_at", "accessed_at") + F.make_dt_interval(
        F.lit(LATE_DAYS)
    )
    counts = (F.count("*").alias("n"), F.count_if(is_late).alias("n_late"))
    try:
        changes = merged.filter("changed").groupBy("day").agg(*counts).toArrow()
        changed = tuple(sorted(changes["day"].to_pylist()))
        if changed or not base.number:
            table_io.replace(merged.filter(F.col("day").isin(*changed)), tables, ACCESSES, base=base)
        return _Changes(pc.sum(changes["n"]).as_py() or 0, pc.sum(changes["n_late"]).as_py() or 0, changed)
    finally:
        merged.unpersist()


def _merge_files(spark: SparkSession, tables: Tables, rows: DataFrame) -> _Changes:
    base = tables.head(FILES)
    old = table_io.read_partitions(spark, base, base.partitions) if base.number else None
    merged = merged_files(rows, old).persist(_KEEP)
    try:
        n_changed = merged.filter("changed").count()
        if n_changed or not base.number:
            table_io.replace(merged, tables, FILES, base=base)
        return _Changes(n_changed)
    finally:
        merged.unpersist()
