"""Several aggregates of an array of cells in one pass, which is faster than a pass for each.

    fold(F.col("cells"), {"n": total(lambda cell: cell["n_access"]), "users_0": union("users_0")})

is a struct of the longs `n` and `users_0`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

Step = tuple[Column, Callable[[Column, Column], Column]]
"""The initial value, and a function from the value so far and a cell to the next value."""


def fold(cells: Column, steps: Mapping[str, Step]) -> Column:
    """A struct with the result of each step, by name."""
    before = F.struct(*(zero.cast("long").alias(name) for name, (zero, _) in steps.items()))
    return F.aggregate(
        cells,
        before,
        lambda sofar, cell: F.struct(
            *(step(sofar[name], cell).alias(name) for name, (_, step) in steps.items())
        ),
    )


def total(term: Callable[[Column], Column]) -> Step:
    """The sum of a long over the cells; 0 without cells."""
    return F.lit(0), lambda sofar, cell: sofar + term(cell)


def counted_if(condition: Callable[[Column], Column]) -> Step:
    """The number of cells with `condition`."""
    return total(lambda cell: F.when(condition(cell), 1).otherwise(0).cast("long"))


def union(word: str) -> Step:
    """The bitwise or of one word of a sketch."""
    return F.lit(0), lambda sofar, cell: sofar.bitwiseOR(cell[word])


def least(field: str) -> Step:
    """The minimum of a field; null without cells."""
    return F.lit(None), lambda sofar, cell: F.least(sofar, cell[field])
