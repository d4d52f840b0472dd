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
    best = _both(rows, old, names).groupBy(F.col("event_id").alias("key")).agg(F.min(candidate).alias("best"))
    return best.select(*(F.col(f"best.{name}") for name in names), F.col("best.is_new").alias("changed"))


def merged_files(rows: DataFrame, old: DataFrame | None) -> DataFrame:
    """One row a file; `changed` tells rows that are not as `old` has them.

    The content is the one published last (`updated_at`), `known_at` the first that any source ever told: so a
    file stays known at the moments at which it was, whatever is published of it later.
    """
    names = FILES.column_names
    content = [name for name in names if name not in {"did", "known_at", "updated_at"}]
    latest = F.struct("updated_at", *content).alias("latest")
    both = _both(rows, old, names).withColumn("updated_at", F.coalesce("updated_at", "known_at"))
    before = F.when(~F.col("is_new"), F.struct("known_at", latest))
    found = both.groupBy("did").agg(
        F.min("known_at").alias("known_at"), F.max(latest).alias("latest"), F.max(before).alias("before")
    )
    same = F.col("before").eqNullSafe(F.struct("known_at", "latest"))
    columns = [F.col(n) if n in {"did", "known_at"} else F.col(f"latest.{n}") for n in names]
    return found.select(*columns, (~same).alias("changed"))


def _both(rows: DataFrame, old: DataFrame | None, names: Sequence[str]) -> DataFrame:
    new = rows.select(*names, F.lit(True).alias("is_new"))
    return new if old is None else new.unionByName(old.select(*names, F.lit(False).alias("is_new")))
