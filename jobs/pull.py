"""Pull one raw input into the tables: accesses into their days, files by did, refusals with their reason.

Pulling the same input twice changes nothing. Late rows re-open their day. Of rows with the same key one
stays, the same whichever came first: for accesses the one known first, for files the one known last.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.schema import ACCESSES, FILES, REJECTS, Table, arrow_schema
from jobs import spark_io
from jobs.sources import site_reader
from jobs.sources.base import Pulled, readable
from jobs.tables import Key, Tables, read_partitions

_KEEP = StorageLevel.MEMORY_AND_DISK
_SALTED = ("user", "task")


@dataclasses.dataclass(frozen=True)
class PullSummary:
    """What became of every row read: n_rows = n_new + n_duplicates + the sum of n_rejected.

    `n_new`: rows that changed a table. `n_rejected` by reason. `days`: days of accesses that changed.
    `n_lost`: records that the source itself says are missing; they are not among `n_rows`. `n_unchanged`:
    inputs that were left out, as they were pulled before (see `new_inputs`).
    """

    n_rows: int
    n_new: int
    n_duplicates: int
    n_rejected: Mapping[str, int]
    days: tuple[str, ...]
    n_lost: int
    n_unchanged: int = 0


def run(
    spark: SparkSession,
    tables: Tables,
    *,
    source: str,
    path: str,
    day: dt.date,
    salt: str = "",
    caches: Sequence[str] = (),
) -> PullSummary:
    """Merge what `source` reads at `path` into the tables; `day` dates the refusals.

    `caches`: hosts and domains of caches, see `jobs.sources.Read`.

    Raises ConfigError for an unknown source, InputError and SchemaError for an unusable input (nothing is
    written then), ConflictError if another pull is at work on these tables.
    """
    read = site_reader(source, salt=salt, day=day.isoformat(), caches=caches)
    with readable(path):
        return merge(spark, tables, lambda: read(spark, path), source=source, day=day)


def merge(
    spark: SparkSession, tables: Tables, read: Callable[[], Pulled], *, source: str, day: dt.date
) -> PullSummary:
    """Merge what `read` gives, called once no other pull is at work; see `run`."""
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
    n_new, days = 0, tuple[str, ...]()
    if pulled.accesses is not None:
        n_new, days = _merge_accesses(spark, tables, pulled.accesses)
    if pulled.files is not None:
        n_new = _merge_files(spark, tables, pulled.files)
    _replace_rejects(tables, source, day, inputs["input"], rejects)
    by_reason = rejects.group_by("reason").aggregate([("n_rows", "sum")]).sort_by("reason").to_pylist()
    n_rejected = {row["reason"]: row["n_rows_sum"] for row in by_reason}
    n_duplicates = n_rows - n_new - sum(n_rejected.values())
    return PullSummary(n_rows, n_new, n_duplicates, n_rejected, days, pulled.n_lost)


def _merge_accesses(spark: SparkSession, tables: Tables, rows: DataFrame) -> tuple[int, tuple[str, ...]]:
    """Number of rows that changed the table, and the days they are in."""
    days = {row["day"] for row in rows.select("day").distinct().toLocalIterator()}
    base = tables.head(ACCESSES)
    chosen = {key: part for key, part in base.partitions.items() if key[0] in days}
    old = spark_io.read_partitions(spark, base, chosen) if chosen else None
    merged = _one_per_key(rows, old, ACCESSES, latest=False).persist(_KEEP)
    try:
        changes = merged.filter("changed").groupBy("day").agg(F.count("*").alias("n")).toArrow()
        changed = tuple(sorted(changes["day"].to_pylist()))
        if changed or not base.number:
            spark_io.replace(merged.filter(F.col("day").isin(*changed)), tables, ACCESSES, base=base)
        return pc.sum(changes["n"]).as_py() or 0, changed
    finally:
        merged.unpersist()


def _merge_files(spark: SparkSession, tables: Tables, rows: DataFrame) -> int:
    """Number of files that are new or newer than the table's."""
    base = tables.head(FILES)
    old = spark_io.read_partitions(spark, base, base.partitions) if base.number else None
    merged = _one_per_key(rows, old, FILES, latest=True).persist(_KEEP)
    try:
        n_changed = merged.filter("changed").count()
        if n_changed or not base.number:
            spark_io.replace(merged, tables, FILES, base=base)
        return n_changed
    finally:
        merged.unpersist()


def _one_per_key(rows: DataFrame, old: DataFrame | None, table: Table, *, latest: bool) -> DataFrame:
    """One row a key out of `rows` and `old`; `changed` tells rows that `old` does not hold."""
    names = [*table.column_names, *table.partition]
    both = rows.select(*names, F.lit(True).alias("changed"))
    if old is not None:
        both = both.unionByName(old.select(*names, F.lit(False).alias("changed")))
    # A total order over the content, so that it does not matter who came first; then the old row. What may be
    # a salted hash comes after it: under another salt of the site it is another text, and changes nothing.
    order = ["known_at", *(name for name in names if name not in {"known_at", *_SALTED})]
    settled = F.col("changed") if not latest else ~F.col("changed")
    candidate = F.struct(*order, settled.alias("settled"), *(name for name in names if name in _SALTED))
    chosen = F.max(candidate) if latest else F.min(candidate)
    best = both.groupBy(*(F.col(key).alias(f"key_{key}") for key in table.key)).agg(chosen.alias("best"))
    changed = ~F.col("best.settled") if latest else F.col("best.settled")
    return best.select(*(F.col(f"best.{name}") for name in names), changed.alias("changed"))


def _replace_rejects(
    tables: Tables, source: str, day: str, inputs: pa.ChunkedArray, rejects: pa.Table
) -> None:
    """Make `rejects` the only refusals of these inputs of `source` on `day`."""
    base = tables.head(REJECTS)
    key: Key = (day,)
    if not rejects.num_rows and key not in base.partitions:
        return
    columns = arrow_schema(REJECTS).names
    old = read_partitions(base, {key: base.partitions[key]} if key in base.partitions else {}, columns)
    ours = pc.and_(pc.equal(old["source"], source), pc.is_in(old["input"], inputs.combine_chunks()))
    pieces = [old.filter(pc.invert(ours)), rejects.select(columns).cast(old.schema)]
    rows = pa.concat_tables(pieces).sort_by([(name, "ascending") for name in REJECTS.key])
    rows = rows.append_column("day", pa.repeat(pa.scalar(day), rows.num_rows))
    tables.replace_arrow(REJECTS, rows, cover=[key], base=base)
