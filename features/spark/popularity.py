"""One entity's own history at an as_of: counts, bytes, decay, users, rhythm, gaps.

All are expressions over the cells that count (`features.spark.histories.counted`), so the same ones serve a
rebuild of many as_ofs and the state of one cycle, files and datasets alike. Nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from features.spark.grid import DAY_S
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
    windowed = rows.withColumns({f"in_{w}": _inside(w) for w in spec.windows_s})
    cells = F.col("cells")
    columns = [column for w in spec.windows_s for column in _window(F.col(f"in_{w}"), w)]
    columns += [_decayed(cells, h, spec).alias(f"decayed_{duration_label(h)}") for h in spec.half_lives_s]
    columns += _whole(cells)
    columns += _gaps(cells, spec.n_gaps)
    named = windowed.select(*rows.columns, *(c.alias(f"_{i}") for i, c in enumerate(columns)))
    names = _names(spec)
    return named.select(
        *rows.columns,
        *(F.col(f"_{names.index(n)}").cast("double").alias(prefix + n) for n in spec.popularity_columns()),
    )


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


def _names(spec: FeatureSpec) -> list[str]:
    """The names of the columns in the order in which `with_popularity` computes them."""
    windows = [
        f"{n}_{duration_label(w)}" for w in spec.windows_s for n in ("n_access", "read_bytes", "n_active")
    ]
    decayed = [f"decayed_{duration_label(h)}" for h in spec.half_lives_s]
    whole = ["n_users", "n_tasks", "recency_s", "first_read_s", "n_same_hour", "n_same_weekday"]
    return [*windows, *decayed, *whole, *(f"gap_{k}_s" for k in range(1, spec.n_gaps + 1))]


def _inside(window_s: int) -> Column:
    return _newer(F.col("cells"), window_s)


def _newer(cells: Column, window_s: int) -> Column:
    return F.filter(cells, lambda cell: cell["cycle"] >= F.col("as_of") - F.lit(window_s))


def _window(inside: Column, window_s: int) -> list[Column]:
    return [_sum(inside, "n_access"), _sum(inside, "read_bytes"), F.size(_cycles(inside))]


def _cycles(cells: Column) -> Column:
    return F.array_distinct(F.transform(cells, lambda cell: cell["cycle"]))


def _sum(cells: Column, field: str) -> Column:
    return _fold(cells, lambda total, cell: total + cell[field])


def _fold(cells: Column, step: Callable[[Column, Column], Column]) -> Column:
    return F.aggregate(cells, F.lit(0).cast("long"), step)


def _decayed(cells: Column, half_life_s: int, spec: FeatureSpec) -> Column:
    """Weights by age in cycles are looked up: a power per cell would cost more than all the rest."""
    ages = range(0, spec.history_s + spec.cycle_s, spec.cycle_s)
    weights = F.array(*(F.lit(round(DECAY_ONE * 2 ** (-age / half_life_s))).cast("long") for age in ages))

    def step(total: Column, cell: Column) -> Column:
        age = ((F.col("as_of") - cell["cycle"]) / F.lit(spec.cycle_s)).cast("int")
        return total + cell["n_access"] * F.get(weights, age)

    return _fold(cells, step) / F.lit(float(DECAY_ONE))


def _whole(cells: Column) -> list[Column]:
    last = F.array_max(F.transform(cells, lambda cell: cell["last_at"]))
    first = F.array_min(F.transform(cells, lambda cell: cell["first_at"]))
    return [
        distinct(cells, "users"),
        distinct(cells, "tasks"),
        F.col("as_of") - last,
        F.col("as_of") - first,
        _sum(_every(cells, DAY_S), "n_access"),
        _sum(_every(cells, _WEEK_S), "n_access"),
    ]


def distinct(cells: Column, of: str) -> Column:
    """Distinct users, tasks or files of `cells`, as `features.sketch` estimates them."""
    return estimate([_fold(cells, _or(name)) for name in word_names(of)])


def _or(name: str) -> Callable[[Column, Column], Column]:
    return lambda word, cell: word.bitwiseOR(cell[name])


def _every(cells: Column, period_s: int) -> Column:
    return F.filter(cells, lambda cell: F.pmod(F.col("as_of") - cell["cycle"], F.lit(period_s)) == 0)


def _gaps(cells: Column, n_gaps: int) -> list[Column]:
    cycles = F.slice(_cycles(cells), 1, n_gaps + 1)
    last_reads = F.transform(cycles, lambda cycle: _last_read(cells, cycle))
    return [F.get(last_reads, F.lit(k)) - F.get(last_reads, F.lit(k + 1)) for k in range(n_gaps)]


def _last_read(cells: Column, cycle: Column) -> Column:
    of_cycle = F.filter(cells, lambda cell: cell["cycle"] == cycle)
    return F.array_max(F.transform(of_cycle, lambda cell: cell["last_at"]))
