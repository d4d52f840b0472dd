"""The features table from the accesses, whole: a rebuild of any set of as_ofs in one pass."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from features.spark.candidates import candidates
from features.spark.context import with_dataset_context, with_file_context
from features.spark.grid import as_of_frame, as_of_text, checked_as_ofs, day_text
from features.spark.popularity import popularity
from features.spark.rollup import dataset_rollup, file_rollup, with_dataset
from features.spark.spans import active_pairs, usable
from features.spec import DATASET_PREFIX, FeatureSpec


def features(
    accesses: DataFrame, files: DataFrame | None, as_ofs: Iterable[int], *, spec: FeatureSpec, region: str
) -> DataFrame:
    """Every candidate's features at every as_of: the columns of `spec.features_table`, then its partition.

    `accesses`, `files`: as the tables; files (unique by did) may be None. `as_ofs`: seconds since 1970.
    The `dataset_` twins are null where the dataset is unknown. Rows at one as_of do not depend on the other
    as_ofs asked for, nor on a record with known_at >= as_of. Raises ValueError if an as_of is off the grid.
    """
    instants = checked_as_ofs(as_ofs, spec.cycle_s)
    cells = needed_cells(accesses, instants, spec=spec)
    return features_of_cells(cells, files, instants, spec=spec, region=region)


def needed_cells(accesses: DataFrame, as_ofs: Iterable[int], *, spec: FeatureSpec) -> DataFrame:
    """The cells (as `file_rollup`) that count at any of the as_ofs. Raises ValueError as `features` does."""
    instants = checked_as_ofs(as_ofs, spec.cycle_s)
    return file_rollup(accesses, cycle_s=spec.cycle_s).where(
        F.col("cycle").between(instants[0] - spec.history_s, instants[-1] - spec.cycle_s)
        & (F.col("known_cycle") <= instants[-1])
    )


def features_of_cells(
    cells: DataFrame, files: DataFrame | None, as_ofs: Iterable[int], *, spec: FeatureSpec, region: str
) -> DataFrame:
    """`features` from cells that hold all that count at the as_ofs, and any others.

    Cells are read several times: a job should persist them, or read them from a table.
    """
    instants = checked_as_ofs(as_ofs, spec.cycle_s)
    grid = as_of_frame(cells.sparkSession, instants)
    chosen = with_file_context(candidates(cells, files, grid, spec=spec))
    own = popularity(chosen.withColumnRenamed("did", "entity"), cells, spec=spec)
    twins = _datasets(cells, files, grid, spec=spec)
    table = spec.features_table
    return (
        own.withColumnRenamed("entity", "did")
        .join(twins, ["dataset", "as_of"], how="left")
        .withColumn("region", F.lit(region))
        .withColumn("day", day_text(F.col("as_of")))
        .withColumn("as_of", as_of_text(F.col("as_of")))
        .select(*table.column_names, *table.partition)
    )


def _datasets(cells: DataFrame, files: DataFrame | None, grid: DataFrame, *, spec: FeatureSpec) -> DataFrame:
    """dataset, as_of (unique) with the twins and the dataset's context, for all datasets with a candidate."""
    named = with_dataset(cells, files, cycle_s=spec.cycle_s)
    merged = dataset_rollup(named)
    within_s = max(spec.candidate_s, spec.active_dataset_s)
    pairs = active_pairs(usable(merged, within_s=within_s, cycle_s=spec.cycle_s), grid)
    context = with_dataset_context(pairs, named, files, spec=spec)
    return popularity(context, merged, spec=spec, prefix=DATASET_PREFIX).withColumnRenamed(
        "entity", "dataset"
    )
