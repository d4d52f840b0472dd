"""What came after: the reads that a model is trained to foresee."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from features.spark.grid import as_of_text, cycle_start, day_text
from features.spec import FeatureSpec
from features.units import duration_label


def labels(accesses: DataFrame, pairs: DataFrame, *, spec: FeatureSpec, until_s: int) -> DataFrame:
    """The labels of `pairs`: the columns of `spec.labels_table`, then its partition columns.

    - n_access_within_{h}: sum of n_reads with accessed_at in [as_of, as_of + h); null if as_of + h > until_s
    - next_access_s: whole seconds from as_of to the first read within the longest horizon; null: none seen

    Only records with known_at < until_s (seconds since 1970) count. `pairs`: did, region, as_of (seconds;
    unique together). `accesses`: as the table.
    """
    horizon_s = max(spec.horizons_s)
    reads = _reads(accesses, cycle_s=spec.cycle_s, until_s=until_s)
    after = (F.col("cycle") >= F.col("as_of")) & (F.col("cycle") < F.col("as_of") + F.lit(horizon_s))
    summed = (
        pairs.join(reads, (F.col("did") == F.col("entity")) & after, how="left")
        .groupBy("did", "region", "as_of")
        .agg(
            *(
                F.sum(F.when(F.col("cycle") < F.col("as_of") + F.lit(h), F.col("n_access"))).alias(f"n_{h}")
                for h in spec.horizons_s
            ),
            F.min("first_at").alias("first_at"),
        )
    )
    matured = [
        F.when(F.col("as_of") + F.lit(h) <= F.lit(until_s), F.coalesce(f"n_{h}", F.lit(0)))
        .cast("long")
        .alias(f"n_access_within_{duration_label(h)}")
        for h in spec.horizons_s
    ]
    table = spec.labels_table
    return summed.select(
        "did",
        "region",
        *matured,
        (F.col("first_at") - F.col("as_of")).alias("next_access_s"),
        day_text(F.col("as_of")).alias("day"),
        as_of_text(F.col("as_of")).alias("as_of"),
    ).select(*table.column_names, *table.partition)


def _reads(accesses: DataFrame, *, cycle_s: int, until_s: int) -> DataFrame:
    """Reads per (entity, cycle) known before `until_s`. Horizons are whole cycles, so no more is needed."""
    return (
        accesses.where(F.unix_micros("known_at") < F.lit(until_s * 1_000_000))
        .select(
            F.col("did").alias("entity"),
            cycle_start(F.col("accessed_at"), cycle_s).alias("cycle"),
            "n_reads",
            F.unix_seconds("accessed_at").alias("at"),
        )
        .groupBy("entity", "cycle")
        .agg(F.sum("n_reads").alias("n_access"), F.min("at").alias("first_at"))
    )
