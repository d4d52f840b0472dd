"""One entity's own history at an as_of: counts, bytes, decay, users, rhythm, gaps.

All are expressions over the cells that count (`features.spark.histories.counted`), so the same ones serve a
rebuild of many as_ofs and the state of one cycle, files and datasets alike. Nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.spark.grid import DAY_S, long_array
from features.spark.sketch import estimate, word_names
from features.spec import FeatureSpec
from features.units import duration_label

DECAY_ONE = 2**32  # fixed point: sums of longs are the same in any order, so a rebuild is equal bit by bit
_WEEK_S = 7 * DAY_S


def with_popularity(rows: DataFrame, *, spec: FeatureSpec, prefix: str = "") -> DataFrame:
    """`rows` with `spec.popularity_columns(prefix)`, all doubles.

    `rows`: as_of, cells (those that count at as_of within history_s, latest first) and any further columns,
    which are kept. Of the reads in these cells:

    - n_access_{w}, read_bytes_{w}: reads and bytes read in [as_of - w, as_of)
    - n_active_{w}: cycles with a read in [as_of - w, as_of)
    - decayed_{h}: sum over reads of 2^(-(as_of - start of the read's cycle)/h), each weight rounded to 2^-32
    - n_users, n_tasks: distinct ones, unknown ones not counted, as `features.sketch` estimates them
    - recency_s, first_read_s: as_of less the last, the first read, in whole seconds; null without a read
    - n_same_hour, n_same_weekday: reads in the cycles that start whole days, whole weeks, before as_of
    - gap_{k}_s: take the last read of every active cycle; the time from the (k+1)-th last to the k-th last
      of these; null if there are fewer

    Sums are 0 without a read.
    """
    longest_first = sorted(spec.windows_s, reverse=True)
    inside = rows.withColumn("heads", _heads(F.col("cells")))
    for wider, w in zip(["", *(f"_{w}" for w in longest_first)], longest_first, strict=False):
        # Windows are nested: each looks through what the next wider one holds.
        inside = inside.withColumns({f"{of}_{w}": _newer(F.col(of + wider), w) for of in ("cells", "heads")})
    values = {name: value for w in spec.windows_s for name, value in _window(w).items()}
    values |= {f"decayed_{duration_label(h)}": _decayed(F.col("cells"), h, spec) for h in spec.half_lives_s}
    values |= _whole(F.col("cells")) | _gaps(F.col("heads"), spec.n_gaps)
    named = [values[name].cast("double").alias(prefix + name) for name in spec.popularity_columns()]
    return inside.select(*rows.columns, *named)


def with_reads(rows: DataFrame, *, spec: FeatureSpec, prefix: str) -> DataFrame:
    """`rows` (as `with_popularity` takes them) with `spec.group_columns(prefix)`: n_access_{w} alone."""
    return rows.withColumns(
        {
            f"{prefix}n_access_{duration_label(w)}": _sum(_newer(F.col("cells"), w), "n_access").cast(
                "double"
            )
            for w in spec.windows_s
        }
    )


def _heads(cells: Column) -> Column:
    """Of every cycle its first cell, which has the cycle's last read."""
    return F.filter(cells, lambda cell, i: ~F.get(cells, i - F.lit(1))["cycle"].eqNullSafe(cell["cycle"]))


def _newer(cells: Column, window_s: int) -> Column:
    return F.filter(cells, lambda cell: cell["cycle"] >= F.col("as_of") - F.lit(window_s))


def _window(window_s: int) -> dict[str, Column]:
    label, inside = duration_label(window_s), F.col(f"cells_{window_s}")
    return {
        f"n_access_{label}": _sum(inside, "n_access"),
        f"read_bytes_{label}": _sum(inside, "read_bytes"),
        f"n_active_{label}": F.size(f"heads_{window_s}"),
    }


def _sum(cells: Column, field: str) -> Column:
    return _fold(cells, lambda total, cell: total + cell[field])


def _fold(cells: Column, step: Callable[[Column, Column], Column]) -> Column:
    return F.aggregate(cells, F.lit(0).cast("long"), step)


def _decayed(cells: Column, half_life_s: int, spec: FeatureSpec) -> Column:
    """Weights by age in cycles are looked up: a power per cell would cost more than all the rest."""
    ages = range(0, spec.history_s + spec.cycle_s, spec.cycle_s)
    weights = long_array(round(DECAY_ONE * 2 ** (-age / half_life_s)) for age in ages)

    def step(total: Column, cell: Column) -> Column:
        age = ((F.col("as_of") - cell["cycle"]) / F.lit(spec.cycle_s)).cast("int")
        return total + cell["n_access"] * F.get(weights, age)

    return _fold(cells, step) / F.lit(float(DECAY_ONE))


def _whole(cells: Column) -> dict[str, Column]:
    first = F.array_min(F.transform(cells, lambda cell: cell["first_at"]))
    return {
        "n_users": distinct(cells, "users"),
        "n_tasks": distinct(cells, "tasks"),
        "recency_s": F.col("as_of") - F.get(cells, F.lit(0))["last_at"],
        "first_read_s": F.col("as_of") - first,
        "n_same_hour": _sum(_every(cells, DAY_S), "n_access"),
        "n_same_weekday": _sum(_every(cells, _WEEK_S), "n_access"),
    }


def distinct(cells: Column, of: str) -> Column:
    """Distinct users, tasks or files of `cells`, as `features.sketch` estimates them."""
    return estimate([_fold(cells, _or(name)) for name in word_names(of)])


def _or(name: str) -> Callable[[Column, Column], Column]:
    return lambda word, cell: word.bitwiseOR(cell[name])


def _every(cells: Column, period_s: int) -> Column:
    return F.filter(cells, lambda cell: F.pmod(F.col("as_of") - cell["cycle"], F.lit(period_s)) == 0)


def _gaps(heads: Column, n_gaps: int) -> dict[str, Column]:
    last_reads = [F.get(heads, F.lit(k))["last_at"] for k in range(n_gaps + 1)]
    return {f"gap_{k}_s": last_reads[k - 1] - last_reads[k] for k in range(1, n_gaps + 1)}
