"""The features table: candidates at an as_of, with features of the file, its dataset and its groups."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from features.spark.candidates import candidates, with_counted
from features.spark.cells import CAMPAIGN, DATASET, TIER, all_cells
from features.spark.context import with_file_context
from features.spark.datasets import active, shifts, with_progress
from features.spark.grid import as_of_frame, as_of_text, checked_as_ofs, day_text
from features.spark.histories import advanced, expired, histories
from features.spark.popularity import with_popularity, with_reads
from features.spec import DATASET_PREFIX, GROUP_PREFIXES, FeatureSpec


def features(
    accesses: DataFrame, files: DataFrame | None, as_ofs: Iterable[int], *, spec: FeatureSpec, region: str
) -> DataFrame:
    """The features of all candidates at all as_ofs: columns of `spec.features_table`, then its partition.

    `accesses`, `files`: as the tables; files (unique by did) may be None. `as_ofs`: seconds since 1970.
    The `dataset_` columns are null if the dataset is unknown. Rows at one as_of do not depend on the other
    as_ofs, nor on records with known_at >= as_of. Raises ValueError if an as_of is off the grid.
    """
    instants = checked_as_ofs(as_ofs, spec.cycle_s)
    # Several branches of the query read the histories; they are kept as long as the result is.
    rebuilt = rebuild(accesses, files, instants, spec=spec).localCheckpoint(eager=False)
    return features_of_histories(rebuilt, files, instants, spec=spec, region=region)


def rebuild(
    accesses: DataFrame, files: DataFrame | None, as_ofs: Iterable[int], *, spec: FeatureSpec
) -> DataFrame:
    """The histories that count at any of the as_ofs. Raises ValueError as `features` does."""
    instants = checked_as_ofs(as_ofs, spec.cycle_s)
    cells = all_cells(accesses, files, cycle_s=spec.cycle_s)
    is_young = F.col("cycle") >= instants[0] - spec.history_s
    return histories(cells.where(is_young & (F.col("known_cycle") <= instants[-1])))


def carried(
    state: DataFrame,
    accesses: DataFrame,
    files: DataFrame | None,
    *,
    since_s: int,
    as_of_s: int,
    spec: FeatureSpec,
) -> DataFrame:
    """`rebuild` at `as_of_s` from the histories at `since_s` and the `accesses` known between the two.

    `accesses` may contain others too. The result equals a rebuild from all accesses bit by bit, unless the
    catalogue has since added files with a `known_at` before `since_s`.
    """
    is_new = (F.col("known_cycle") > since_s) & (F.col("known_cycle") <= as_of_s)
    new = histories(all_cells(accesses, files, cycle_s=spec.cycle_s).where(is_new))
    return expired(advanced(state, new), before_s=as_of_s - spec.history_s)


def features_of_histories(
    state: DataFrame, files: DataFrame | None, as_ofs: Iterable[int], *, spec: FeatureSpec, region: str
) -> DataFrame:
    """`features` from histories that have all cells that count at the as_ofs, and possibly others.

    Histories are read several times: a job should persist them or read them from a table.
    """
    grid = as_of_frame(state.sparkSession, checked_as_ofs(as_ofs, spec.cycle_s))
    datasets = active(with_counted(state, DATASET, grid, spec=spec), files, spec=spec)
    chosen = candidates(state, datasets, files, grid, spec=spec)
    own = with_popularity(with_file_context(chosen), spec=spec).drop("cells")
    progress = with_progress(datasets.withColumnRenamed("entity", "dataset"), spec=spec)
    of_group = ["dataset", "as_of"]
    of_dataset = _dataset_features(progress.join(shifts(state, grid, spec=spec), of_group, how="left"), spec)
    rows = own.join(of_dataset, of_group, how="left")
    rows = rows.withColumn("due_s", F.col("dataset_shift_s") - F.col("recency_s"))
    for kind in (TIER, CAMPAIGN):
        rows = rows.join(F.broadcast(_group_features(state, kind, grid, spec)), [kind, "as_of"], how="left")
    table = spec.features_table
    return (
        rows.withColumn("region", F.lit(region))
        .withColumn("day", day_text(F.col("as_of")))
        .withColumn("as_of", as_of_text(F.col("as_of")))
        .select(*table.column_names, *table.partition)
    )


def _dataset_features(datasets: DataFrame, spec: FeatureSpec) -> DataFrame:
    rows = datasets.select("dataset", "as_of", "cells", *spec.progress_columns)
    return with_popularity(rows, spec=spec, prefix=DATASET_PREFIX).drop("cells")


def _group_features(state: DataFrame, kind: str, grid: DataFrame, spec: FeatureSpec) -> DataFrame:
    rows = with_counted(state, kind, grid, spec=spec)
    return with_reads(rows, spec=spec, prefix=GROUP_PREFIXES[kind]).select(
        F.col("entity").alias(kind), "as_of", *spec.group_columns(GROUP_PREFIXES[kind])
    )
