"""One entity's own history at an as_of: counts, bytes, decay, users, gaps."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from features.spark.gaps import with_gaps
from features.spark.spans import SPAN, counts_at, distinct_spans, usable
from features.spec import FeatureSpec
from features.units import duration_label

DECAY_ONE = 2**32  # fixed point: sums of longs are the same in any order, so a rebuild is equal bit by bit


def popularity(pairs: DataFrame, cells: DataFrame, *, spec: FeatureSpec, prefix: str = "") -> DataFrame:
    """`pairs` with `spec.popularity_columns(prefix)`, all doubles.

    `pairs`: entity, as_of (unique) and any further columns, which are kept. `cells`: as a roll-up gives.
    A read counts at as_of if known_at < as_of and it lies in [as_of - history_s, as_of). Of those:

    - n_access_{w}, read_bytes_{w}: reads and bytes read in [as_of - w, as_of)
    - n_active_{w}: cycles with a read in [as_of - w, as_of)
    - decayed_{h}: sum over reads of 2^(-(as_of - start of the read's cycle)/h), each weight rounded to 2^-32
    - n_users, n_tasks: distinct ones, unknown ones not counted
    - recency_s, first_read_s: as_of less the last, the first read, in whole seconds; null without a read
    - gap_{k}_s: take the last read of every active cycle; the time from the (k+1)-th last to the k-th last
      of these; null if there are fewer

    Sums are 0 without a read. Both sides are shuffled by entity once; then all is one hash aggregation.
    """
    spans = usable(cells, within_s=spec.history_s, cycle_s=spec.cycle_s)
    kept = with_gaps(pairs, spans, n_gaps=spec.n_gaps)
    rows = kept.join(
        _contributions(spans, spec=spec).withColumnRenamed("entity", "read_entity"),
        (F.col("entity") == F.col("read_entity")) & counts_at(F.col("as_of")),
        how="left",
    )
    summed = rows.groupBy(*kept.columns).agg(*_window_sums(spec), *_decayed(spec), *_whole_history())
    return summed.select(*pairs.columns, *_finished(spec, prefix))


def _contributions(spans: DataFrame, *, spec: FeatureSpec) -> DataFrame:
    """What an entity's cells add to each as_of of a span; a cycle is counted (`n_opened`) by its first cell.

    One row per (entity, span). All cells of a span are of the cycle that ends history_s before it does.
    """
    by_known = Window.partitionBy("entity", "cycle").orderBy("known_cycle")
    sums = ["n_access", "read_bytes", "n_opened", "n_users", "n_tasks"]
    rows = spans.select(
        "entity",
        *SPAN,
        "n_access",
        "read_bytes",
        "first_at",
        "last_at",
        (F.row_number().over(by_known) == 1).cast("long").alias("n_opened"),
    )
    for members, name in (("users", "n_users"), ("tasks", "n_tasks")):
        seen = spans.select("entity", F.explode(members).alias("member"), *SPAN)
        distinct = distinct_spans(seen, name=name, cycle_s=spec.cycle_s)
        rows = rows.unionByName(distinct, allowMissingColumns=True)
    return (
        rows.repartition("entity")
        .groupBy("entity", *SPAN)
        .agg(
            *(F.sum(name).alias(name) for name in sums),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
        )
        .withColumn("cycle", F.col("last_as_of") - F.lit(spec.history_s))
    )


def _window_sums(spec: FeatureSpec) -> list[Column]:
    return [
        F.sum(F.when(F.col("cycle") >= F.col("as_of") - F.lit(window_s), F.col(value))).alias(
            f"{name}_{duration_label(window_s)}"
        )
        for name, value in (("n_access", "n_access"), ("read_bytes", "read_bytes"), ("n_active", "n_opened"))
        for window_s in spec.windows_s
    ]


def _decayed(spec: FeatureSpec) -> list[Column]:
    age = ((F.col("as_of") - F.col("cycle")) / F.lit(spec.cycle_s)).cast("int")
    return [
        F.sum(F.col("n_access") * F.get(_weights(spec, half_life_s), age)).alias(
            f"decayed_{duration_label(half_life_s)}"
        )
        for half_life_s in spec.half_lives_s
    ]


def _weights(spec: FeatureSpec, half_life_s: int) -> Column:
    """Weight of a read by its age in cycles: looked up, for a power per row costs more than all the rest."""
    ages = range(0, spec.history_s + spec.cycle_s, spec.cycle_s)
    return F.array(*(F.lit(round(DECAY_ONE * 2 ** (-age / half_life_s))).cast("long") for age in ages))


def _whole_history() -> list[Column]:
    return [
        F.sum("n_users").alias("n_users"),
        F.sum("n_tasks").alias("n_tasks"),
        F.max("last_at").alias("last_at"),
        F.min("first_at").alias("first_at"),
    ]


def _finished(spec: FeatureSpec, prefix: str) -> list[Column]:
    """The columns of the spec, in its order, from the aggregation's."""
    as_they_are = {f"gap_{k}_s" for k in range(1, spec.n_gaps + 1)}
    special = {name: F.col(name) for name in as_they_are} | {
        "recency_s": F.col("as_of") - F.col("last_at"),
        "first_read_s": F.col("as_of") - F.col("first_at"),
    }
    for half_life_s in spec.half_lives_s:
        name = f"decayed_{duration_label(half_life_s)}"
        special[name] = F.coalesce(F.col(name), F.lit(0)) / F.lit(float(DECAY_ONE))
    return [
        special.get(name, F.coalesce(F.col(name), F.lit(0))).cast("double").alias(prefix + name)
        for name in spec.popularity_columns()
    ]
