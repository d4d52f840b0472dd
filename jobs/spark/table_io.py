"""Tables as DataFrames: read a snapshot, replace partitions in one write."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StructType,
)

from features.errors import SchemaError
from features.schema import Table
from features.spark.schema import struct_type
from jobs.store.keys import Key
from jobs.store.tables import Partition, Snapshot, StagedPartition, Tables

_log = logging.getLogger(__name__)

_WIDENS: Final[set[tuple[type[DataType], type[DataType]]]] = {
    (IntegerType, LongType),
    (ShortType, LongType),
    (FloatType, DoubleType),
    (IntegerType, DoubleType),
    (LongType, DoubleType),
}


def read(
    spark: SparkSession,
    tables: Tables,
    table: Table,
    *,
    since: str | None = None,
    until: str | None = None,
    as_of: str | None = None,
    owner: str | None = None,
) -> DataFrame:
    """The rows of the chosen partitions of the current snapshot of the table, read lazily.

    Columns: the table's, then its partition columns as strings. `since` and `until` are inclusive days
    (`2026-03-01`), `owner` a region or cache. Raises StaleInputError if the table has no commit.
    """
    snapshot = tables.snapshot(table)
    return read_partitions(
        spark, snapshot, snapshot.select(since=since, until=until, as_of=as_of, owner=owner)
    )


def read_partitions(spark: SparkSession, snapshot: Snapshot, chosen: Mapping[Key, Partition]) -> DataFrame:
    """The rows of `chosen` partitions of `snapshot`; see `read`."""
    table = snapshot.table
    paths = [f"{snapshot.root}/{part.path}/{name}" for part in chosen.values() for name in part.files]
    n_rows = sum(part.n_rows for part in chosen.values())
    found = (len(chosen), n_rows, table.name, snapshot.number, snapshot.root)
    _log.info("Spark reads %d partitions, %d rows of table %s at commit %d, %s", *found)
    if not paths:
        return spark.createDataFrame([], struct_type(table, with_partition=True))
    frame = spark.read.schema(struct_type(table)).parquet(*paths)
    columns = [F.col(name) for name in table.column_names]
    return frame.select(*columns, *(_from_path(name).alias(name) for name in table.partition))


def replace(
    df: DataFrame,
    tables: Tables,
    table: Table,
    *,
    cover: Iterable[Key] = (),
    base: Snapshot | None = None,
) -> Snapshot:
    """Replace the partitions present in `df`, and those of `cover`; others stay.

    `df` has the table's columns and its partition columns as strings; other columns are dropped. Rows are
    sorted by key within a file, so equal rows make equal files, and no new commit. `base`: the snapshot
    `df` was made from, if any. Raises SchemaError, ConflictError (another run replaced a partition).
    """
    base = base or tables.head(table)
    rows = conform(df, table)
    order = dict.fromkeys([*table.partition, *(["did"] if "did" in rows.columns else []), *table.key])
    if table.partition:
        rows = rows.hint("rebalance", *(F.col(name) for name in table.partition))
    staging = tables.staging(table)
    writer = rows.sortWithinPartitions(*order).write.mode("overwrite").option("compression", "zstd")
    writer.partitionBy(*table.partition).parquet(tables.location(table, staging))
    staged = {**dict.fromkeys(cover, StagedPartition("", ())), **_staged(tables.files(table, staging))}
    if not table.partition:
        staged.setdefault((), StagedPartition("", ()))
    return tables.commit(table, staged, base=base)


def conform(df: DataFrame, table: Table) -> DataFrame:
    """`df` with the table's columns, then its partition columns. Raises SchemaError naming the column."""
    wanted = struct_type(table, with_partition=True)
    found = {field.name: field.dataType for field in df.schema}
    for field in wanted:
        if field.name not in found:
            raise SchemaError(
                f"table {table.name}: column {field.name!r} is missing; there are {list(found)}"
            )
        if not _fits(found[field.name], field.dataType):
            raise SchemaError(
                f"table {table.name}: column {field.name!r} is {found[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return df.select(*(F.col(field.name).cast(field.dataType) for field in StructType(wanted.fields)))


def _fits(found: DataType, wanted: DataType) -> bool:
    same = found.simpleString() == wanted.simpleString() or isinstance(found, NullType)
    return same or (type(found), type(wanted)) in _WIDENS


def _from_path(name: str) -> Column:
    """A partition's value, from its folder in the file's path (Spark gives the path URL-encoded)."""
    tail = F.substring_index(F.col("_metadata.file_path"), f"/{name}=", -1)
    value = F.substring_index(tail, "/", 1)
    return (
        value
        if name == "day"
        else F.replace(F.replace(value, F.lit("%25"), F.lit("%")), F.lit("%3A"), F.lit(":"))
    )


def _staged(written: Sequence[str]) -> dict[Key, StagedPartition]:
    """The files that Spark wrote into a staging folder, by partition."""
    names: dict[str, list[str]] = {}
    for path in written:
        folder, _, name = path.rpartition("/")
        if name.endswith(".parquet"):
            names.setdefault(folder, []).append(name)
    staged = {}
    for folder, files in names.items():
        key = tuple(part.split("=", 1)[1].replace("%3A", ":") for part in folder.split("/")[1:])
        staged[key] = StagedPartition(folder, tuple(files))
    return staged
