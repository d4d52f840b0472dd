"""Which as_ofs a cell counts for, and how many distinct members an entity had, without counting them anew.

A cell counts within w at the as_ofs from `first_as_of` (its reads are past and known) to `last_as_of`
(cycle + w), both inclusive. A span is such a stretch with a number.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SPAN = ["first_as_of", "last_as_of"]


def usable(cells: DataFrame, *, within_s: int, cycle_s: int) -> DataFrame:
    """`cells` (cycle, known_cycle, …) with first_as_of and last_as_of; those that never count are dropped."""
    return (
        cells.withColumn("first_as_of", F.greatest(F.col("known_cycle"), F.col("cycle") + F.lit(cycle_s)))
        .withColumn("last_as_of", F.col("cycle") + F.lit(within_s))
        .where(F.col("first_as_of") <= F.col("last_as_of"))
    )


def counts_at(as_of: Column) -> Column:
    """Whether a row with first_as_of and last_as_of counts at `as_of`."""
    return (F.col("first_as_of") <= as_of) & (F.col("last_as_of") >= as_of)


def active_pairs(spans: DataFrame, as_ofs: DataFrame) -> DataFrame:
    """Each (entity, as_of) with a span that holds it: columns entity, as_of; unique.

    `spans`: entity, first_as_of, last_as_of. `as_ofs`: a small table of as_of.
    """
    return (
        spans.select("entity", *SPAN)
        .join(F.broadcast(as_ofs), counts_at(F.col("as_of")), how="inner")
        .select("entity", "as_of")
        .distinct()
    )


def uncovered(spans: DataFrame, *, by: Sequence[str], cycle_s: int) -> DataFrame:
    """`spans` cut to the as_ofs that no earlier span with the same `by` covers; few rows are left.

    So at any as_of a value of `by` has one span if it had any, else none. Result: `by`, first_as_of,
    last_as_of.
    """
    earlier = Window.partitionBy(*by).orderBy(*SPAN).rowsBetween(Window.unboundedPreceding, -1)
    first = F.greatest(F.col("first_as_of"), F.max("last_as_of").over(earlier) + F.lit(cycle_s))
    return spans.select(*by, first.alias("first_as_of"), "last_as_of").where(
        F.col("first_as_of") <= F.col("last_as_of")
    )


def distinct_spans(seen: DataFrame, *, name: str, cycle_s: int) -> DataFrame:
    """Spans whose `name`s, summed over those that hold an as_of, count the distinct members at that as_of.

    `seen`: entity, member, first_as_of, last_as_of; any number of rows per member. Result: entity,
    first_as_of, last_as_of, `name` (long).
    """
    return (
        uncovered(seen, by=["entity", "member"], cycle_s=cycle_s)
        .groupBy("entity", *SPAN)
        .agg(F.count(F.lit(1)).alias(name))
        .select("entity", *SPAN, name)
    )
