"""The rows of a table that become the trace, as indices into the table."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from features.arrays import BoolArray, IntArray

Rows: TypeAlias = IntArray | None
"""Row numbers, in order; None: all rows as they are, which takes no memory."""

_Value = TypeVar("_Value", bound=np.generic)


def pick(rows: Rows, values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
    """`values` of the chosen rows."""
    return values if rows is None else values[rows]


def narrowed(rows: Rows, kept: BoolArray) -> Rows:
    """Those of `rows` for which `kept` (one entry per row of the table) is true."""
    if kept.all():
        return rows
    return np.flatnonzero(kept) if rows is None else rows[kept[rows]]
