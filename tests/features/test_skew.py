"""One file that is read a million times costs what its cycles cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from features.schema import ACCESSES
from features.spark.cells import all_cells
from features.spark.features import features
from features.spark.schema import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOT, N_HOT, N_COLD, N_CYCLES, N_USERS = "s:hot", 1_000_000, 1000, 10, 37


@pytest.fixture(scope="module")
def worlds(make_worlds: Callable[..., Any]) -> Any:
    return make_worlds(3, n_worlds=1)


@pytest.fixture(scope="module")
def accesses(spark: SparkSession, worlds: Any) -> DataFrame:
    """N_HOT reads of one file, one of each of N_COLD others, evenly over N_CYCLES cycles."""
    read_s = N_CYCLES * worlds.spec.cycle_s / (N_HOT + N_COLD)
    is_hot = F.col("id") % ((N_HOT + N_COLD) // N_COLD) != 0
    at = F.timestamp_micros(((F.col("id") * read_s + worlds.start) * 1e6).cast("long"))
    columns = {
        "did": F.when(is_hot, HOT).otherwise(F.concat(F.lit("s:cold"), F.col("id").cast("string"))),
        "dataset": F.lit("s:all"),
        "accessed_at": at,
        "known_at": at,
        "n_reads": F.lit(1),
        "size_bytes": F.lit(10),
        "user": F.concat(F.lit("u"), (F.col("id") % N_USERS).cast("string")),
    }
    rows = spark.range(N_HOT + N_COLD).select(*(column.alias(name) for name, column in columns.items()))
    wanted = struct_type(ACCESSES)
    missing = {f.name: F.lit(None) for f in wanted if f.name not in columns}
    rows = rows.withColumns(missing)
    return rows.select(*(F.col(f.name).cast(f.dataType) for f in wanted))


def test_a_hot_file_is_one_cell_a_cycle(accesses: DataFrame, worlds: Any) -> None:
    cells = all_cells(accesses, None, cycle_s=worlds.spec.cycle_s)
    per_entity = cells.where(F.col("entity").isin(HOT, "s:all")).groupBy("entity").count()
    assert {row["entity"]: row["count"] for row in per_entity.collect()} == {HOT: N_CYCLES, "s:all": N_CYCLES}


def test_a_hot_file_is_counted_whole(accesses: DataFrame, worlds: Any) -> None:
    as_of = worlds.start + N_CYCLES * worlds.spec.cycle_s
    rows = features(accesses, None, [as_of], spec=worlds.spec, region="r")
    (hot,) = rows.where(F.col("did") == HOT).collect()
    longest = worlds.spec.popularity_columns()[len(worlds.spec.windows_s) - 1]
    n_hot = accesses.where(F.col("did") == HOT).count()
    assert hot[longest] == n_hot > 0.99 * N_HOT
    assert hot["n_users"] == pytest.approx(N_USERS, rel=0.15)
    assert hot["recency_s"] < 60
