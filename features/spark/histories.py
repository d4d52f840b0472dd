"""Histories: the cells of an entity in one row, latest first. They are the state carried between cycles.

    kind, entity (unique together), cells: an array of `features.schema.CELL_FIELDS`

Cells are in a total order, so that a history rebuilt from the accesses equals one carried along and extended.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.spark.cells import CELL

COLUMNS = ["kind", "entity", "cells"]


def histories(cells: DataFrame) -> DataFrame:
    """The histories of `cells` (as from `features.spark.cells`)."""
    ordered = F.sort_array(F.collect_list(F.struct(*CELL)), asc=False)
    return cells.groupBy("kind", "entity").agg(ordered.alias("cells")).select(*COLUMNS)


def advanced(state: DataFrame, new: DataFrame) -> DataFrame:
    """`state` with the cells of `new` added; both are histories, without common cells."""
    added = new.select(*(F.col(name).alias(f"new_{name}") for name in COLUMNS))
    same = (F.col("kind") == F.col("new_kind")) & (F.col("entity") == F.col("new_entity"))
    joined = state.join(added, same, how="full_outer")
    both = F.sort_array(F.concat("cells", "new_cells"), asc=False)
    return joined.select(
        F.coalesce("kind", "new_kind").alias("kind"),
        F.coalesce("entity", "new_entity").alias("entity"),
        F.coalesce(both, "cells", "new_cells").alias("cells"),
    )


def expired(state: DataFrame, *, before_s: int) -> DataFrame:
    """`state` without cells of cycles that start before `before_s`, and without entities left empty."""
    kept = F.filter("cells", lambda cell: cell["cycle"] >= F.lit(before_s))
    return state.withColumn("cells", kept).where(F.size("cells") > 0)


def counted(cells: Column, as_of: Column, *, within_s: int, cycle_s: int) -> Column:
    """The `cells` that count at `as_of`: known by then, of cycles in [as_of - within_s, as_of)."""
    return F.filter(
        cells,
        lambda cell: (
            (cell["known_cycle"] <= as_of)
            & (cell["cycle"] + F.lit(cycle_s) <= as_of)
            & (cell["cycle"] >= as_of - F.lit(within_s))
        ),
    )
