"""The last gaps between an entity's active cycles, as known at an as_of."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def with_gaps(pairs: DataFrame, spans: DataFrame, *, n_gaps: int) -> DataFrame:
    """`pairs` with gap_1_s … (long), as `popularity` defines them.

    `pairs`: entity, as_of, …; `spans`: cells as `usable` gives them. An entity's cells travel as one array:
    it is as long as the entity has cycles, and collecting it anew for every as_of would cost a sort.
    """
    if not n_gaps:
        return pairs
    last_reads = F.slice(F.transform(F.filter("cycles", _holds), lambda c: c["last_at"]), 1, n_gaps + 1)
    return (
        pairs.join(_cycles(spans), "entity", how="left")
        .withColumn("last_reads", last_reads)
        .select(*pairs.columns, *(_gap(k).alias(f"gap_{k}_s") for k in range(1, n_gaps + 1)))
    )


def _cycles(spans: DataFrame) -> DataFrame:
    """entity (unique), cycles: latest first, each with the last read known from first_as_of to replaced_at.

    Late reads give a cycle more than one cell; the later known one holds the last read of both.
    """
    by_known = Window.partitionBy("entity", "cycle").orderBy("known_cycle")
    so_far = by_known.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    versions = spans.select(
        "entity",
        F.struct(
            "cycle",
            *("first_as_of", "last_as_of"),
            F.lead("known_cycle").over(by_known).alias("replaced_at"),
            F.max("last_at").over(so_far).alias("last_at"),
        ).alias("version"),
    )
    cycles = F.sort_array(F.collect_list("version"), asc=False)
    return versions.groupBy("entity").agg(cycles.alias("cycles"))


def _holds(version: Column) -> Column:
    as_of = F.col("as_of")
    replaced = F.coalesce(version["replaced_at"] <= as_of, F.lit(False))
    return (version["first_as_of"] <= as_of) & (version["last_as_of"] >= as_of) & ~replaced


def _gap(k: int) -> Column:
    return F.get("last_reads", F.lit(k - 1)) - F.get("last_reads", F.lit(k))
