"""Several figures of an array of cells in one walk: a walk for each would cost more than what it adds up.

    fold(F.col("cells"), {"n": total(lambda cell: cell["n_access"]), "users_0": union("users_0")})

is a struct of the longs `n` and `users_0`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

Step = tuple[Column, Callable[[Column, Column], Column]]
"""What there is before the first cell, and after one more: a function of what there was, and of the cell."""


def fold(cells: Column, steps: Mapping[str, Step]) -> Column:
    """A struct of what each step comes to, by its name."""
    before = F.struct(*(zero.cast("long").alias(name) for name, (zero, _) in steps.items()))
    return F.aggregate(
        cells,
        before,
        lambda sofar, cell: F.struct(
            *(step(sofar[name], cell).alias(name) for name, (_, step) in steps.items())
        ),
    )


def total(term: Callable[[Column], Column]) -> Step:
    """The sum of a long of each cell; 0 without cells."""
    return F.lit(0), lambda sofar, cell: sofar + term(cell)


def counted_if(condition: Callable[[Column], Column]) -> Step:
    """The number of cells that fulfil `condition`."""
    return total(lambda cell: F.when(condition(cell), 1).otherwise(0).cast("long"))


def union(word: str) -> Step:
    """The or of one word of a sketch."""
    return F.lit(0), lambda sofar, cell: sofar.bitwiseOR(cell[word])


def least(field: str) -> Step:
    """The least of a field; null without cells."""
    return F.lit(None), lambda sofar, cell: F.least(sofar, cell[field])
