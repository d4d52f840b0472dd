"""Context of a file at an as_of: size, age, and the time of day and week."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from features.spark.grid import hour_of_day, weekday


def with_file_context(candidates: DataFrame) -> DataFrame:
    """`candidates` with size_bytes, age_s, hour and weekday (Monday 0) of as_of in UTC, as doubles.

    age_s: as_of - created_at, at least 0; null if created_at is. created_at is dropped.
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
