"""The order of a trace's rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray
from features.common.errors import InputError, SchemaError
from replay.read.bridge import Rows, array_of, pick, values_of
from replay.read.choice import Roles
from replay.read.source import Source
from replay.read.times import TickArray
from replay.read.values import is_text, refuse_null


def in_order(source: Source, roles: Roles, ticks: TickArray, *, sort: bool) -> Rows:
    """The rows in time order: those of an `accesses` table by (time, event_id), others as they are.

    `sort`: sort the rows of a foreign table by time. Raises InputError naming the first row that is earlier
    than the one before, if it is not to be sorted; SchemaError.
    """
    backwards = ticks[1:] < ticks[:-1]
    unordered = bool(backwards.any())
    if unordered and not (sort or roles.house):
        row = int(backwards.argmax()) + 1
        raise InputError(
            f"{source.where(row)} has {roles.time} {ticks[row]}, earlier than {ticks[row - 1]} in the row "
            "before; sort the trace, or give --sort"
        )
    del backwards
    rows = np.argsort(ticks, kind="stable") if unordered else None
    if roles.event_id is None:
        return rows
    return _by_event(source, roles.event_id, rows, pick(rows, ticks))


def _by_event(source: Source, name: str, rows: Rows, ticks: TickArray) -> Rows:
    same: BoolArray = ticks[1:] == ticks[:-1]
    if not same.any():
        return rows
    column = source.take(name)
    refuse_null(source, column, name)
    if not (is_text(column.type) or pa.types.is_integer(column.type)):
        raise SchemaError(f"{source.label}: {name} is {column.type}; it must be strings or integers")
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    if rows is None and not _falls(column, same):
        return None
    tied = np.concatenate([same, [False]]) | np.concatenate([[False], same])
    at = np.flatnonzero(tied)
    chosen = at if rows is None else rows[at]
    pairs = pa.table({"at": array_of(ticks[at]), "event": column.take(array_of(chosen))})
    order = pc.sort_indices(pairs, [("at", "ascending"), ("event", "ascending")])
    found = np.arange(ticks.size) if rows is None else rows
    found[at] = chosen[values_of(pa.chunked_array([order]))]
    return found


def _falls(column: pa.ChunkedArray, same: BoolArray) -> bool:
    """Whether an event at the same time as the one before it has a lower id."""
    start = 0
    for chunk in column.chunks:
        if start and len(chunk) and same[start - 1] and chunk[0].as_py() < column[start - 1].as_py():
            return True
        lower = pc.less(chunk[1:], chunk[:-1]).to_numpy(zero_copy_only=False)
        if (lower & same[start : start + lower.size]).any():
            return True
        start += len(chunk)
    return False
