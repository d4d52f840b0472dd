"""Accesses rolled up to cells: everything a feature needs, and no row per read.

A cell is (entity, cycle, known cycle): the reads of one file, or dataset, in one cycle that became usable at
one as_of. Cells never change once their known cycle is past, and merge without loss; their number is bounded
by files times cycles, however hot a file is.

    entity (string), cycle (start of the reads' cycle), known_cycle (the first as_of that may use them:
    known_at < as_of exactly if known_cycle <= as_of), n_access (sum of n_reads), read_bytes (of read_bytes,
    else size_bytes, else 0), first_at, last_at (accessed_at, whole seconds), users, tasks (sets of xxhash64)

Instants are seconds since 1970, see `features.spark.grid`; every number is a long.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.spark.grid import cycle_start, next_boundary

_KEY = ["entity", "cycle", "known_cycle"]
CELL = [*_KEY, "n_access", "read_bytes", "first_at", "last_at", "users", "tasks"]
FACTS = ["dataset", "tier", "size_bytes"]


def file_rollup(accesses: DataFrame, *, cycle_s: int) -> DataFrame:
    """Cells of each did, and what its reads say of it: columns CELL and FACTS.

    A fact is the greatest value the cell's reads give, null if none gives one. `accesses`: as the table.
    """
    return (
        accesses.select(
            F.col("did").alias("entity"),
            cycle_start(F.col("accessed_at"), cycle_s).alias("cycle"),
            next_boundary(F.col("known_at"), cycle_s).alias("known_cycle"),
            "n_reads",
            F.coalesce("read_bytes", "size_bytes", F.lit(0).cast("long")).alias("bytes"),
            F.unix_seconds("accessed_at").alias("at"),
            _hash_of("user"),
            _hash_of("task"),
            *FACTS,
        )
        .groupBy(*_KEY)
        .agg(
            F.sum("n_reads").alias("n_access"),
            F.sum("bytes").alias("read_bytes"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
            F.collect_set("user").alias("users"),
            F.collect_set("task").alias("tasks"),
            *(F.max(name).alias(name) for name in FACTS),
        )
        .select(*CELL, *FACTS)
    )


def with_dataset(cells: DataFrame, files: DataFrame | None, *, cycle_s: int) -> DataFrame:
    """`cells` of files, those that name no dataset under the one the catalogue names: CELL and FACTS.

    Such a cell is known once both the read and the file are. `files`: as the table, unique by did, or None.
    """
    if files is None:
        return cells
    catalogue = files.select(
        F.col("did").alias("entity"),
        F.col("dataset").alias("catalogue_dataset"),
        next_boundary(F.col("known_at"), cycle_s).alias("file_known_cycle"),
    )
    known = F.when(F.col("dataset").isNull(), F.greatest("known_cycle", "file_known_cycle"))
    return (
        cells.join(catalogue, "entity", how="left")
        .withColumn("known_cycle", F.coalesce(known, "known_cycle"))
        .withColumn("dataset", F.coalesce("dataset", "catalogue_dataset"))
        .select(*CELL, *FACTS)
    )


def dataset_rollup(cells: DataFrame) -> DataFrame:
    """Cells of each dataset, merged from those of its files (`with_dataset`): columns CELL."""
    return (
        cells.where(F.col("dataset").isNotNull())
        .groupBy(F.col("dataset").alias("entity"), "cycle", "known_cycle")
        .agg(
            F.sum("n_access").alias("n_access"),
            F.sum("read_bytes").alias("read_bytes"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
            _union_of("users"),
            _union_of("tasks"),
        )
        .select(*CELL)
    )


def _hash_of(name: str) -> Column:
    return F.when(F.col(name).isNotNull(), F.xxhash64(name)).alias(name)


def _union_of(name: str) -> Column:
    return F.array_distinct(F.flatten(F.collect_list(name))).alias(name)
