from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.errors import SchemaError, StaleInputError
from features.schema import REJECTS
from features.spark.schema import struct_type
from jobs.spark import table_io
from jobs.store.tables import Tables

DAYS = ("2026-03-01", "2026-03-02")


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path / "tables"))


def numbers(spark: SparkSession, n: int) -> DataFrame:
    number = F.col("id").cast("string")
    return spark.range(n).select(
        F.lit("s").alias("source"),
        number.alias("input"),
        F.lit("r").alias("reason"),
        F.col("id").cast("int").alias("n_rows"),
        F.lit(None).alias("sample"),
        F.when(F.col("id") % 2 == 0, DAYS[0]).otherwise(DAYS[1]).alias("day"),
        F.lit("dropped").alias("further"),
    )


def test_spark_and_arrow_read_what_spark_wrote(spark: SparkSession, tables: Tables) -> None:
    snapshot = table_io.replace(numbers(spark, 10), tables, REJECTS)
    assert snapshot.n_rows == 10
    frame = table_io.read(spark, tables, REJECTS)
    wanted_types = [(f.name, f.dataType) for f in struct_type(REJECTS, with_partition=True)]
    assert [(f.name, f.dataType) for f in frame.schema] == wanted_types
    wanted = {(n, DAYS[n % 2]) for n in range(10)}
    assert {(row["n_rows"], row["day"]) for row in frame.collect()} == wanted
    rows = tables.read_arrow(REJECTS).to_pylist()
    assert {(row["n_rows"], row["day"]) for row in rows} == wanted
    late = table_io.read(spark, tables, REJECTS, since=DAYS[1])
    assert {row["day"] for row in late.collect()} == {DAYS[1]}


def test_equal_rows_in_another_order_are_no_new_commit(spark: SparkSession, tables: Tables) -> None:
    first = table_io.replace(numbers(spark, 1000), tables, REJECTS)
    assert table_io.replace(numbers(spark, 1000).orderBy(F.desc("input")), tables, REJECTS) == first


def test_a_frame_stays_with_its_snapshot(spark: SparkSession, tables: Tables) -> None:
    table_io.replace(numbers(spark, 4), tables, REJECTS)
    frame = table_io.read(spark, tables, REJECTS)
    table_io.replace(numbers(spark, 8), tables, REJECTS)
    assert frame.count() == 4
    assert table_io.read(spark, tables, REJECTS).count() == 8


def test_a_covered_partition_without_rows_becomes_empty(spark: SparkSession, tables: Tables) -> None:
    table_io.replace(numbers(spark, 4), tables, REJECTS)
    table_io.replace(numbers(spark, 0), tables, REJECTS, cover=[(DAYS[0],)])
    assert {row["day"] for row in table_io.read(spark, tables, REJECTS).collect()} == {DAYS[1]}
    assert table_io.read(spark, tables, REJECTS, until=DAYS[0]).count() == 0


def test_what_does_not_fit_is_refused_and_named(spark: SparkSession, tables: Tables) -> None:
    good = numbers(spark, 2)
    with pytest.raises(SchemaError, match="'reason' is missing"):
        table_io.replace(good.drop("reason"), tables, REJECTS)
    with pytest.raises(SchemaError, match="'n_rows' is string, not bigint"):
        table_io.replace(good.withColumn("n_rows", F.lit("1")), tables, REJECTS)
    with pytest.raises(SchemaError, match="'reason' holds 1 nulls"):
        table_io.replace(good.withColumn("reason", F.lit(None).cast("string")), tables, REJECTS)
    with pytest.raises(SchemaError, match="day"):
        table_io.replace(good.withColumn("day", F.lit("today")), tables, REJECTS)
    with pytest.raises(StaleInputError):
        table_io.read(spark, tables, REJECTS)
