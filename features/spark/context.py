"""What a file is and where it stands: size, age, its dataset's files, the time of day."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.spark.grid import hour_of_day, next_boundary, weekday
from features.spark.spans import SPAN, counts_at, distinct_spans, usable
from features.spec import FeatureSpec

_NEVER = 2**62  # as last_as_of: counts at every later as_of


def with_file_context(candidates: DataFrame) -> DataFrame:
    """`candidates` with size_bytes, age_s, hour and weekday (Monday 0) of as_of in UTC, as doubles.

    age_s is as_of - created_at, at least 0; null where created_at is. created_at is dropped.
    """
    age = F.greatest(F.col("as_of") - F.col("created_at"), F.lit(0))
    kept = [name for name in candidates.columns if name not in ("size_bytes", "created_at")]
    return candidates.select(
        *kept,
        F.col("size_bytes").cast("double").alias("size_bytes"),
        F.when(F.col("created_at").isNotNull(), age).cast("double").alias("age_s"),
        hour_of_day(F.col("as_of")).cast("double").alias("hour"),
        weekday(F.col("as_of")).cast("double").alias("weekday"),
    )


def with_dataset_context(
    pairs: DataFrame, cells: DataFrame, files: DataFrame | None, *, spec: FeatureSpec
) -> DataFrame:
    """`pairs` of datasets with dataset_n_files and dataset_touched_share, as doubles.

    - dataset_n_files: files of the catalogue with this dataset, created before as_of (or nobody knows when)
      and known_at < as_of; where there is none, distinct files read in [as_of - history_s, as_of)
    - dataset_touched_share: distinct files read in [as_of - active_dataset_s, as_of) / dataset_n_files,
      at most 1 (a catalogue may be incomplete)

    `pairs`: entity (dataset), as_of (unique) and any further columns. `cells`: as `with_dataset` gives.
    """
    spans = _distinct_files(cells, "n_seen", within_s=spec.history_s, cycle_s=spec.cycle_s)
    touched = _distinct_files(cells, "n_touched", within_s=spec.active_dataset_s, cycle_s=spec.cycle_s)
    spans = spans.unionByName(touched, allowMissingColumns=True)
    if files is not None:
        spans = spans.unionByName(_members(files, cycle_s=spec.cycle_s), allowMissingColumns=True)
    else:
        spans = spans.withColumn("n_members", F.lit(None).cast("long"))
    summed = (
        pairs.repartition("entity")
        .join(
            spans.withColumnRenamed("entity", "dataset"),
            (F.col("entity") == F.col("dataset")) & counts_at(F.col("as_of")),
            how="left",
        )
        .groupBy(*pairs.columns)
        .agg(*(F.sum(name).alias(name) for name in ("n_seen", "n_touched", "n_members")))
    )
    n_files = F.coalesce("n_members", "n_seen")
    share = F.least(F.coalesce("n_touched", F.lit(0)) / n_files, F.lit(1.0))
    return summed.select(
        *pairs.columns,
        n_files.cast("double").alias("dataset_n_files"),
        share.cast("double").alias("dataset_touched_share"),
    )


def _distinct_files(cells: DataFrame, name: str, *, within_s: int, cycle_s: int) -> DataFrame:
    seen = usable(cells.where(F.col("dataset").isNotNull()), within_s=within_s, cycle_s=cycle_s)
    return distinct_spans(
        seen.select(F.col("dataset").alias("entity"), F.col("entity").alias("member"), *SPAN),
        name=name,
        cycle_s=cycle_s,
    )


def _members(files: DataFrame, *, cycle_s: int) -> DataFrame:
    return (
        files.where(F.col("dataset").isNotNull())
        .select(F.col("dataset").alias("entity"), _exists_from(cycle_s).alias("first_as_of"))
        .groupBy("entity", "first_as_of")
        .agg(F.count(F.lit(1)).alias("n_members"))
        .select("entity", "first_as_of", F.lit(_NEVER).cast("long").alias("last_as_of"), "n_members")
    )


def _exists_from(cycle_s: int) -> Column:
    """The first as_of at which a file is known and created; a null created_at is passed over."""
    return F.greatest(next_boundary(F.col("known_at"), cycle_s), next_boundary(F.col("created_at"), cycle_s))
