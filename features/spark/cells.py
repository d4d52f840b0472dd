"""Accesses rolled up to cells: all that features need, without a row per read.

A cell has the reads of one entity (a file, dataset, tier or campaign) in one cycle that became usable at one
as_of. Cells never change after that as_of, and add up exactly. Their number depends on entities and cycles,
not on the number of reads.

    kind, entity   what it is (`file`, `dataset`, `tier`, `campaign`) and which
    cycle          start of the reads' cycle
    known_cycle    the first as_of that may use them: known_at < as_of if and only if known_cycle <= as_of
    n_access       sum of n_reads
    read_bytes     sum of read_bytes, else size_bytes, else 0; of a read known before its end, of size_bytes
    first_at, last_at   accessed_at of the first and the last read, whole seconds
    users_*, tasks_*, files_*   sketches (features.sketch) of the distinct users, tasks, and files of a group
    dataset, tier, campaign, size_bytes, created_at   facts about the file; null for other kinds

Instants are seconds since 1970, see `features.spark.grid`; every number is a long, so that Spark can use hash
aggregation: with objects or strings in the buffer it would sort.
"""

from __future__ import annotations

import functools

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.schema import CELL_FACTS, CELL_FIELDS
from features.spark.grid import cycle_start, next_boundary
from features.spark.sketch import union, words

FILE, DATASET, TIER, CAMPAIGN = "file", "dataset", "tier", "campaign"
GROUPS = (DATASET, TIER, CAMPAIGN)
CELL = [name for name, _ in CELL_FIELDS]
FACTS = list(CELL_FACTS)
COLUMNS = ["kind", "entity", *CELL]

_SKETCHED = ("users", "tasks", "files")


def all_cells(accesses: DataFrame, files: DataFrame | None, *, cycle_s: int) -> DataFrame:
    """The cells of all files read, and of their datasets, tiers and campaigns: the columns `COLUMNS`.

    Facts of a file come from the read and from the catalogue, if that knew the file by then. The read has
    precedence for the dataset, the catalogue for tier, campaign and size. Files that the catalogue adds later
    do not change earlier cells. `accesses`, `files` (unique by did, or None): as the tables.
    """
    own = file_cells(accesses, files, cycle_s=cycle_s)
    groups = [group_cells(own, kind) for kind in GROUPS]
    return functools.reduce(DataFrame.unionByName, groups, own.select(*COLUMNS))


def file_cells(accesses: DataFrame, files: DataFrame | None, *, cycle_s: int) -> DataFrame:
    """The cells of files; reads of one cycle with different facts get a cell each."""
    facts = ["dataset", "tier", "campaign", "size_bytes"]
    rolled = (
        accesses.select(
            F.col("did").alias("entity"),
            cycle_start(F.col("accessed_at"), cycle_s).alias("cycle"),
            next_boundary(F.col("known_at"), cycle_s).alias("known_cycle"),
            *facts,
            F.col("n_reads").alias("n_access"),
            F.coalesce(_told_bytes(), "size_bytes", F.lit(0).cast("long")).alias("read_bytes"),
            F.unix_seconds("accessed_at").alias("first_at"),
            F.unix_seconds("accessed_at").alias("last_at"),
            *words(F.col("user"), "users"),
            *words(F.col("task"), "tasks"),
        )
        .groupBy("entity", "cycle", "known_cycle", *facts)
        .agg(*_sums(("users", "tasks")))
        .withColumn("created_at", F.lit(None).cast("long"))
    )
    rolled = rolled.withColumns({name: F.lit(0).cast("long") for name in _words_of(("files",))})
    complete = rolled if files is None else _with_catalogue(rolled, files, cycle_s=cycle_s)
    return complete.withColumn("kind", F.lit(FILE)).select(*COLUMNS)


def group_cells(cells: DataFrame, kind: str) -> DataFrame:
    """The cells of the groups in the column `kind` of the files' `cells`; files without one are left out."""
    return (
        cells.where(F.col(kind).isNotNull())
        .withColumns(dict(zip(_words_of(("files",)), words(F.col("entity"), "files"), strict=True)))
        .groupBy(F.col(kind).alias("entity"), "cycle", "known_cycle")
        .agg(*_sums(_SKETCHED))
        .withColumns({"kind": F.lit(kind), **_no_facts()})
        .select(*COLUMNS)
    )


def _with_catalogue(cells: DataFrame, files: DataFrame, *, cycle_s: int) -> DataFrame:
    catalogue = files.select(
        F.col("did").alias("file"),
        next_boundary(F.col("known_at"), cycle_s).alias("file_known_cycle"),
        *(F.col(name).alias(f"file_{name}") for name in FACTS if name != "created_at"),
        F.unix_seconds("created_at").alias("file_created_at"),
    )
    in_time = F.col("file_known_cycle") <= F.col("known_cycle")
    joined = cells.join(catalogue, (F.col("entity") == F.col("file")) & in_time, how="left")
    facts = {name: F.coalesce(f"file_{name}", name) for name in FACTS}
    return joined.withColumns(facts | {"dataset": F.coalesce("dataset", "file_dataset")})


def _told_bytes() -> Column:
    """The bytes of a read that its record told from the first: not those of an end after `known_at`."""
    ended_later = F.coalesce(F.col("closed_at") > F.col("known_at"), F.lit(False))
    return F.when(~ended_later, F.col("read_bytes"))


def _sums(sketched: tuple[str, ...]) -> list[Column]:
    return [
        F.sum("n_access").alias("n_access"),
        F.sum("read_bytes").alias("read_bytes"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        *(word for of in sketched for word in union(of)),
    ]


def _words_of(sketched: tuple[str, ...]) -> list[str]:
    return [name for name in CELL if name.rpartition("_")[0] in sketched]


def _no_facts() -> dict[str, Column]:
    return {name: F.lit(None).cast(CELL_FACTS[name]) for name in FACTS}
