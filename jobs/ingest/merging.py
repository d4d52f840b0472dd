"""One row a key out of new rows and a table's: whichever came first, and however often, the same stays."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from features.schema import ACCESSES, FILES

# What may be a salted hash: under another salt of the site it is another text, and changes nothing.
_SALTED = ("user", "task")


def merged_accesses(rows: DataFrame, old: DataFrame | None) -> DataFrame:
    """One row an event; `changed` tells rows that `old` does not hold.

    Of several the one that tells its end, then the one known first: an open that was told alone gives way to
    the same with its close.
    """
    names = [*ACCESSES.column_names, *ACCESSES.partition]
    order = [name for name in names if name not in {"known_at", *_SALTED}]
    candidate = F.struct(
        F.col("closed_at").isNull().alias("unfinished"),
        "known_at",
        *order,
        F.col("is_new"),
        *_SALTED,
    )
    once, again = _by_count(_both(rows, old, names), "event_id")
    best = again.groupBy(F.col("event_id").alias("key")).agg(F.min(candidate).alias("best"))
    chosen = best.select(*(F.col(f"best.{name}") for name in names), F.col("best.is_new").alias("changed"))
    return once.withColumnRenamed("is_new", "changed").unionByName(chosen)


def merged_files(rows: DataFrame, old: DataFrame | None) -> DataFrame:
    """One row a file; `changed` tells rows that are not as `old` has them.

    The content is the one published last (`updated_at`), `known_at` the first that any source ever told: so a
    file stays known at the moments at which it was, whatever is published of it later.
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
    """`rows` whose key is there once, and the others.

    To choose among rows of a key is a sort of whole rows; to count keys is not, and few are there twice.
    """
    hashed = rows.withColumn("hash", F.xxhash64(key))  # of two keys with one hash both are among the others
    repeated = hashed.groupBy("hash").agg(F.count(F.lit(1)).alias("n")).where("n > 1").select("hash")
    once, again = (hashed.join(repeated, "hash", how=how).drop("hash") for how in ("left_anti", "left_semi"))
    return once, again


def _both(rows: DataFrame, old: DataFrame | None, names: Sequence[str]) -> DataFrame:
    new = rows.select(*names, F.lit(True).alias("is_new"))
    return new if old is None else new.unionByName(old.select(*names, F.lit(False).alias("is_new")))
