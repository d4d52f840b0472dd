"""Which files are scored at an as_of, and what is known of them then."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.spark.grid import next_boundary
from features.spark.rollup import FACTS, dataset_rollup, with_dataset
from features.spark.spans import active_pairs, counts_at, uncovered, usable
from features.spec import FeatureSpec

PAIR = ["did", "as_of"]
COLUMNS = [*PAIR, *FACTS, "created_at"]


def candidates(
    cells: DataFrame, files: DataFrame | None, as_ofs: DataFrame, *, spec: FeatureSpec
) -> DataFrame:
    """One row per candidate: did, as_of (unique), dataset, tier, size_bytes, created_at (seconds).

    A candidate was read in [as_of - candidate_s, as_of), or is a file of the catalogue, created before as_of
    (or nobody knows when), whose dataset was read in [as_of - active_dataset_s, as_of). Only reads and
    catalogue rows with known_at < as_of count. The dataset is the one its reads within candidate_s name,
    else the catalogue's; size and tier are the catalogue's, else those its reads name. Where reads name
    several, the greatest (of a name: the last in order) is taken.

    `cells`: as `file_rollup` gives; `files`: as the table, unique by did, or None; `as_ofs`: a small table.
    """
    read = _read(cells, as_ofs, spec=spec)
    if files is None:
        return read.withColumn("created_at", F.lit(None).cast("long")).select(*COLUMNS)
    catalogue = _catalogue(files, cycle_s=spec.cycle_s)
    active = _active_datasets(cells, files, as_ofs, spec=spec)
    unread = _members(catalogue, active)
    pairs = (
        read.unionByName(unread, allowMissingColumns=True)
        .groupBy(*PAIR)
        .agg(*(F.max(name).alias(f"read_{name}") for name in FACTS))
    )
    return (
        pairs.join(catalogue, (pairs["did"] == catalogue["file"]) & _is_known(), how="left")
        .withColumn("dataset", F.coalesce("read_dataset", "dataset"))
        .withColumn("tier", F.coalesce("tier", "read_tier"))
        .withColumn("size_bytes", F.coalesce("size_bytes", "read_size_bytes"))
        .select(*COLUMNS)
    )


def _read(cells: DataFrame, as_ofs: DataFrame, *, spec: FeatureSpec) -> DataFrame:
    spans = usable(cells, within_s=spec.candidate_s, cycle_s=spec.cycle_s)
    return (
        uncovered(spans, by=["entity", *FACTS], cycle_s=spec.cycle_s)
        .join(F.broadcast(as_ofs), counts_at(F.col("as_of")), how="inner")
        .groupBy(F.col("entity").alias("did"), "as_of")
        .agg(*(F.max(name).alias(name) for name in FACTS))
        .select(*PAIR, *FACTS)
    )


def _catalogue(files: DataFrame, *, cycle_s: int) -> DataFrame:
    return files.select(
        F.col("did").alias("file"),
        *FACTS,
        F.unix_seconds("created_at").alias("created_at"),
        next_boundary(F.col("known_at"), cycle_s).alias("file_known_cycle"),
    )


def _active_datasets(
    cells: DataFrame, files: DataFrame, as_ofs: DataFrame, *, spec: FeatureSpec
) -> DataFrame:
    named = dataset_rollup(with_dataset(cells, files, cycle_s=spec.cycle_s))
    return active_pairs(usable(named, within_s=spec.active_dataset_s, cycle_s=spec.cycle_s), as_ofs)


def _members(catalogue: DataFrame, active: DataFrame) -> DataFrame:
    exists = F.col("created_at").isNull() | (F.col("created_at") < F.col("as_of"))
    return catalogue.join(
        active, (F.col("dataset") == F.col("entity")) & _is_known() & exists, how="inner"
    ).select(F.col("file").alias("did"), "as_of")


def _is_known() -> Column:
    return F.col("file_known_cycle") <= F.col("as_of")
