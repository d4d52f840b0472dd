"""Labels: the reads after an as_of, which a model is trained to predict."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.spark.grid import as_of_text, cycle_start, day_text
from features.spec import LONGEST_HORIZON_S, FeatureSpec
from features.times import DAY_S
from features.units import duration_label


def labels(
    accesses: DataFrame,
    pairs: DataFrame,
    *,
    spec: FeatureSpec,
    until_s: int,
    clairvoyant_hits: DataFrame | None = None,
) -> DataFrame:
    """The labels of `pairs`: the columns of `spec.labels_table`, then its partition columns.

    - n_access_within_{h}: sum of n_reads with accessed_at in [as_of, as_of + h); null if as_of + h > until_s
    - n_days_within_{h}: distinct UTC days with a read in [as_of, as_of + h); null if as_of + h > until_s
    - next_access_s: whole seconds from as_of to the first read within the longest horizon; null: none known
    - kept: whether the clairvoyant's cache held the file from before as_of until that first read; false if
      all horizons have matured without a read; null if they have not, or without `clairvoyant_hits`

    Only records with known_at < until_s (seconds since 1970) count. `pairs`: did, region, as_of (seconds;
    unique together). `accesses`: as the table. `clairvoyant_hits`: did, at (seconds; unique together):
    first reads of a file in a second that hit in the clairvoyant's cache. Raises ValueError if a horizon
    is longer than 63 days.
    """
    horizon_s = max(spec.horizons_s)
    if horizon_s > LONGEST_HORIZON_S:
        raise ValueError(f"labels have horizons of at most 63 days, got {duration_label(horizon_s)}")
    reads = _reads(accesses, cycle_s=spec.cycle_s, until_s=until_s)
    after = (F.col("cycle") >= F.col("as_of")) & (F.col("cycle") < F.col("as_of") + F.lit(horizon_s))
    summed = (
        pairs.join(reads, (F.col("did") == F.col("entity")) & after, how="left")
        .groupBy("did", "region", "as_of")
        .agg(
            *(column for h in spec.horizons_s for column in (_accesses_within(h), _days_within(h))),
            F.min("first_at").alias("first_at"),
        )
    )
    is_over = _matured(horizon_s, until_s)
    kept = F.when(F.col("first_at").isNotNull(), F.col("is_hit")).when(is_over, F.lit(False))
    rows = _with_hits(summed, clairvoyant_hits).withColumn(
        "kept", kept if clairvoyant_hits is not None else F.col("is_hit")
    )
    table = spec.labels_table
    return rows.select(
        "did",
        "region",
        *(
            F.when(_matured(h, until_s), F.coalesce(f"{name}_{h}", F.lit(0)))
            .cast("long")
            .alias(f"{name}_within_{duration_label(h)}")
            for h in spec.horizons_s
            for name in ("n_access", "n_days")
        ),
        (F.col("first_at") - F.col("as_of")).alias("next_access_s"),
        "kept",
        day_text(F.col("as_of")).alias("day"),
        as_of_text(F.col("as_of")).alias("as_of"),
    ).select(*table.column_names, *table.partition)


def _reads(accesses: DataFrame, *, cycle_s: int, until_s: int) -> DataFrame:
    """Reads per (entity, cycle, UTC day) known before `until_s`.

    Horizons are whole cycles, so this grain suffices for their counts; a cycle may be longer than a day.
    """
    at = F.unix_seconds("accessed_at")
    return (
        accesses.where(F.unix_micros("known_at") < F.lit(until_s * 1_000_000))
        .select(
            F.col("did").alias("entity"),
            cycle_start(F.col("accessed_at"), cycle_s).alias("cycle"),
            F.floor(at / F.lit(DAY_S)).alias("day_number"),
            "n_reads",
            at.alias("at"),
        )
        .groupBy("entity", "cycle", "day_number")
        .agg(F.sum("n_reads").alias("n_access"), F.min("at").alias("first_at"))
    )


def _within(horizon_s: int) -> Column:
    return F.col("cycle") < F.col("as_of") + F.lit(horizon_s)


def _matured(horizon_s: int, until_s: int) -> Column:
    return F.col("as_of") + F.lit(horizon_s) <= F.lit(until_s)


def _accesses_within(horizon_s: int) -> Column:
    return F.sum(F.when(_within(horizon_s), F.col("n_access"))).alias(f"n_access_{horizon_s}")


def _days_within(horizon_s: int) -> Column:
    """Distinct days, as bits of one long; the day of as_of is the lowest bit."""
    day = (F.col("day_number") - F.floor(F.col("as_of") / F.lit(DAY_S))).cast("int")
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), day)
    return F.bit_count(F.bit_or(F.when(_within(horizon_s), bit))).alias(f"n_days_{horizon_s}")


def _with_hits(summed: DataFrame, clairvoyant_hits: DataFrame | None) -> DataFrame:
    """`summed` with is_hit: whether the first read is in `clairvoyant_hits`; null without these."""
    if clairvoyant_hits is None:
        return summed.withColumn("is_hit", F.lit(None).cast("boolean"))
    hits = clairvoyant_hits.select(F.col("did").alias("hit_did"), F.col("at").alias("hit_at"))
    same = (F.col("did") == F.col("hit_did")) & (F.col("first_at") == F.col("hit_at"))
    return summed.join(hits, same, how="left").withColumn("is_hit", F.col("hit_at").isNotNull())
