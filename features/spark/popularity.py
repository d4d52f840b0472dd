"""Features of an entity's history at an as_of: counts, bytes, decay, users, rhythm, gaps.

All are expressions over the cells that count (`features.spark.histories.counted`): the same for rebuilds and
incremental states, for files and datasets. Nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.spark.folds import Step, counted_if, fold, least, total, union
from features.spark.grid import long_array
from features.spark.sketch import estimate, word_names
from features.spec import FeatureSpec
from features.times import DAY_S
from features.units import duration_label

DECAY_ONE = 2**32  # fixed point: sums of longs do not depend on order, so rebuilds are equal bit by bit
_WEEK_S = 7 * DAY_S


def with_popularity(rows: DataFrame, *, spec: FeatureSpec, prefix: str = "") -> DataFrame:
    """`rows` with `spec.popularity_columns(prefix)`, all doubles.

    `rows`: as_of, cells (those that count at as_of within history_s, latest first) and any further columns,
    which are kept. Of the reads in these cells:

    - n_access_{w}, read_bytes_{w}: reads and bytes read in [as_of - w, as_of)
    - n_active_{w}: cycles with a read in [as_of - w, as_of)
    - decayed_{h}: sum over reads of 2^(-(as_of - start of the read's cycle)/h), each weight rounded to 2^-32
    - n_users, n_tasks: distinct ones, estimated (`features.sketch`); unknown ones do not count
    - recency_s, first_read_s: as_of minus the last or the first read, whole seconds; null without a read
    - n_same_hour, n_same_weekday: reads in cycles that start a number of days, or weeks, before as_of
    - gap_{k}_s: of the last reads of all cycles with a read, the time from the (k+1)-th last to the k-th
      last; null if there are fewer

    Sums are 0 without a read.
    """
    folded = rows.withColumn("heads", heads(F.col("cells"))).withColumns(
        {"sums": fold(F.col("cells"), _steps(spec)), "active": fold(F.col("heads"), _active(spec))}
    )
    values = {
        "recency_s": F.col("as_of") - F.get("heads", F.lit(0))["last_at"],
        "first_read_s": F.col("as_of") - F.col("sums")["first_at"],
        "n_users": _distinct("users"),
        "n_tasks": _distinct("tasks"),
        **{name: F.col("active")[name] for name in _active(spec)},
        **_gaps(F.col("heads"), spec.n_gaps),
    }
    for half_life_s in spec.half_lives_s:
        name = f"decayed_{duration_label(half_life_s)}"
        values[name] = F.col("sums")[name] / F.lit(float(DECAY_ONE))
    columns = [
        values.get(name, F.col("sums")[name]).cast("double").alias(prefix + name)
        for name in spec.popularity_columns()
    ]
    return folded.select(*rows.columns, *columns)


def with_reads(rows: DataFrame, *, spec: FeatureSpec, prefix: str) -> DataFrame:
    """`rows` (as for `with_popularity`) with `spec.group_columns(prefix)`, which are n_access_{w}."""
    steps = {f"n_access_{duration_label(w)}": _total_within(w, "n_access") for w in spec.windows_s}
    columns = [F.col("sums")[name].cast("double").alias(prefix + name) for name in steps]
    return rows.withColumn("sums", fold(F.col("cells"), steps)).select(*rows.columns, *columns)


def sketch_steps(of: str) -> dict[str, Step]:
    """Steps that give `features.spark.sketch.estimate` its words, of the users, tasks or files of cells."""
    return {name: union(name) for name in word_names(of)}


def _steps(spec: FeatureSpec) -> dict[str, Step]:
    steps: dict[str, Step] = {"first_at": least("first_at")}
    for w in spec.windows_s:
        steps |= {f"{of}_{duration_label(w)}": _total_within(w, of) for of in ("n_access", "read_bytes")}
    steps |= {f"decayed_{duration_label(h)}": _decayed(h, spec) for h in spec.half_lives_s}
    steps |= {"n_same_hour": _every(DAY_S), "n_same_weekday": _every(_WEEK_S)}
    return steps | sketch_steps("users") | sketch_steps("tasks")


def _active(spec: FeatureSpec) -> dict[str, Step]:
    """Steps over `heads`."""
    return {f"n_active_{duration_label(w)}": counted_if(_newer(w)) for w in spec.windows_s}


def heads(cells: Column) -> Column:
    """The first cell of each cycle (`cells`: latest first); it has the last read of its cycle."""
    return F.filter(cells, lambda cell, i: ~F.get(cells, i - F.lit(1))["cycle"].eqNullSafe(cell["cycle"]))


def _newer(window_s: int) -> Callable[[Column], Column]:
    return lambda cell: cell["cycle"] >= F.col("as_of") - F.lit(window_s)


def _total_within(window_s: int, field: str) -> Step:
    return total(lambda cell: _if(_newer(window_s)(cell), cell[field]))


def _every(period_s: int) -> Step:
    return total(
        lambda cell: _if(F.pmod(F.col("as_of") - cell["cycle"], F.lit(period_s)) == 0, cell["n_access"])
    )


def _if(condition: Column, value: Column) -> Column:
    return F.when(condition, value).otherwise(F.lit(0).cast("long"))


def _decayed(half_life_s: int, spec: FeatureSpec) -> Step:
    """The decayed sum of reads. Weights by age in cycles are looked up, because powers are slow."""
    ages = range(0, spec.history_s + spec.cycle_s, spec.cycle_s)
    weights = long_array(round(DECAY_ONE * 2 ** (-age / half_life_s)) for age in ages)

    def term(cell: Column) -> Column:
        age = ((F.col("as_of") - cell["cycle"]) / F.lit(spec.cycle_s)).cast("int")
        return cell["n_access"] * F.get(weights, age)

    return total(term)


def _distinct(of: str) -> Column:
    return estimate([F.col("sums")[name] for name in word_names(of)])


def _gaps(heads: Column, n_gaps: int) -> dict[str, Column]:
    last_reads = [F.get(heads, F.lit(k))["last_at"] for k in range(n_gaps + 1)]
    return {f"gap_{k}_s": last_reads[k - 1] - last_reads[k] for k in range(1, n_gaps + 1)}
