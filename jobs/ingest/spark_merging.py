"""One row per key from new rows and those of a table; the result does not depend on order or repetition."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from features.schema import ACCESSES, FILES
from jobs.ingest.merging import IN_TWO_PARTS

# These may be salted hashes: a difference caused by another salt of the site is no change.
_SALTED = ("user", "task")


def merged_accesses(rows: DataFrame, old: DataFrame | None) -> DataFrame:
    """One row per event; `changed`: the row is not in `old`.

    Of several rows of an event, one with its end is preferred, then the one known first. An open reported
    before its close (`IN_TWO_PARTS`) is completed by the close and stays known since the open.
    """
    names = [*ACCESSES.column_names, *ACCESSES.partition]
    order = [name for name in names if name not in {"known_at", *_SALTED}]
    whole = F.col("source") != IN_TWO_PARTS
    candidate = F.struct(
        F.col("closed_at").isNull().alias("unfinished"),
        F.when(whole, F.col("known_at")).alias("known_at_once"),
        *order,
        F.col("is_new"),
        *_SALTED,
        "known_at",
    )
    once, again = _by_count(_both(rows, old, names), "event_id")
    best = again.groupBy(F.col("event_id").alias("key")).agg(
        F.min(candidate).alias("best"), F.min("known_at").alias("first_at")
    )
    known = F.coalesce("best.known_at_once", "first_at")
    moved = F.col("best.is_new") | (F.col("best.known_at") != known)
    columns = [known.alias(name) if name == "known_at" else F.col(f"best.{name}") for name in names]
    chosen = best.select(*columns, moved.alias("changed"))
    return once.withColumnRenamed("is_new", "changed").unionByName(chosen)


def merged_files(rows: DataFrame, old: DataFrame | None) -> DataFrame:
    """One row per file; `changed`: the row differs from the one in `old`.

    The content is the one published last (`updated_at`). `known_at` is the earliest of any source, so that a
    file stays known at the times at which it was known, whatever is published later.
    """
    names = FILES.column_names
    content = [name for name in names if name not in {"did", "known_at", "updated_at"}]
    latest = F.struct("updated_at", *content).alias("latest")
    both = _both(rows, old, names).withColumn("updated_at", F.coalesce("updated_at", "known_at"))
    once, again = _by_count(both, "did")
    before = F.when(~F.col("is_new"), F.struct("known_at", latest))
    found = again.groupBy("did").agg(
        F.min("known_at").alias("known_at"), F.max(latest).alias("latest"), F.max(before).alias("before")
    )
    same = F.col("before").eqNullSafe(F.struct("known_at", "latest"))
    columns = [F.col(n) if n in {"did", "known_at"} else F.col(f"latest.{n}") for n in names]
    chosen = found.select(*columns, (~same).alias("changed"))
    return once.withColumnRenamed("is_new", "changed").unionByName(chosen)


def _by_count(rows: DataFrame, key: str) -> tuple[DataFrame, DataFrame]:
    """The rows of `rows` with a unique key, and the others.

    Choosing among the rows of a key sorts whole rows; counting keys is cheap, and few keys repeat.
    """
    hashed = rows.withColumn("hash", F.xxhash64(key))  # two keys with the same hash are both among the others
    repeated = hashed.groupBy("hash").agg(F.count(F.lit(1)).alias("n")).where("n > 1").select("hash")
    once, again = (hashed.join(repeated, "hash", how=how).drop("hash") for how in ("left_anti", "left_semi"))
    return once, again


def _both(rows: DataFrame, old: DataFrame | None, names: Sequence[str]) -> DataFrame:
    new = rows.select(*names, F.lit(True).alias("is_new"))
    return new if old is None else new.unionByName(old.select(*names, F.lit(False).alias("is_new")))
