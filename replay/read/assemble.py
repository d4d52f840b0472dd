"""A `Trace` made from the columns of a source, one column at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from features.common.arrays import IntArray
from features.common.errors import InputError
from replay.read.bridge import Rows
from replay.read.choice import Choice, Roles, chosen_rows, columns_beside, details
from replay.read.files import dense_files, read_files, refuse_overflow, rows_of_known_size
from replay.read.order import in_order
from replay.read.source import Source
from replay.read.times import closes, read_ticks, reads
from replay.read.values import least, refuse_null
from replay.trace import MOST_ACCESSES, Trace

_NOTES = (
    "rows left out, since no source knows their file's size",
    "rows that state another size than their file's first, which counts",
    "accesses that close before they open, taken as closed at once",
    "accesses that read more than their file's size, taken as read whole",
)


MOST_READS = 2**24
"""Of one row, as `pull` refuses more: a small file must not make a trace of gigabytes."""


class LoadedTrace(NamedTuple):
    """A trace, and what happened to the rows it was made from.

    `n_unsized_rows`: rows left out because no source knows their file's size. `details`: the descriptive
    columns to keep that exist, one row per access, strings as dictionaries. `notes`: a sentence for each
    rule that changed or dropped rows, with their number.
    """

    trace: Trace
    n_unsized_rows: int
    details: pa.Table
    notes: tuple[str, ...]


def assemble(
    source: Source,
    roles: Roles,
    choice: Choice,
    *,
    time_unit: str = "s",
    sort: bool = False,
    files: Source | None = None,
) -> LoadedTrace:
    """The trace of the rows of `source`; see `read_trace` and `docs/replay.md`.

    A column is dropped as soon as it is no longer needed, since a large trace barely fits in memory.
    Raises InputError, SchemaError.
    """
    beside = columns_beside(source, roles, choice)
    ticks = read_ticks(source, roles.time, time_unit)
    rows = in_order(source, roles, ticks.value, sort=sort)
    rows = chosen_rows(source, ticks, rows, choice, beside.get("site"))
    columns = read_files(source, roles, rows, files)
    rows, n_unsized = rows_of_known_size(rows, columns)
    n_reads = _n_reads(source, roles.n_reads)
    rows = _repeated(source, rows, n_reads)
    item, size, names = dense_files(rows, columns)
    n_differing = columns.n_differing
    del columns
    refuse_overflow(source, item, size)
    time_s = ticks.seconds(rows)
    del ticks
    close_s, n_early = closes(source, roles.close, rows, time_s, time_unit)
    read_bytes, n_long = reads(source, roles.read, rows, n_reads, size[item] if roles.read else size)
    kept = details(beside, choice, rows)
    # Arrow keeps freed memory for its next column, and there is none.
    pa.default_memory_pool().release_unused()
    trace = Trace(time_s, item, size, names=names, close_s=close_s, read_bytes=read_bytes)
    numbers = (n_unsized, n_differing, n_early, n_long)
    notes = tuple(f"{note}: {n}" for note, n in zip(_NOTES, numbers, strict=True) if n)
    return LoadedTrace(trace, n_unsized, kept, notes)


def _n_reads(source: Source, name: str | None) -> IntArray | None:
    if name is None:
        return None
    column = source.take(name)
    refuse_null(source, column, name)
    return least(source, column, name, 1)


def _repeated(source: Source, rows: Rows, n_reads: IntArray | None) -> Rows:
    """Each row as often as it has reads. Raises InputError if these are more than a trace may have."""
    if n_reads is None or (n_reads == 1).all():
        return rows
    every = np.arange(n_reads.size) if rows is None else rows
    # As floats: a sum of 64-bit numbers can wrap round to a small one.
    total = n_reads[every].sum(dtype=np.float64)
    if total > MOST_ACCESSES or n_reads.max() > MOST_READS:
        row = int(n_reads.argmax())
        raise InputError(
            f"{source.label} states {total:.3g} reads, the most with n_reads {n_reads[row]} in "
            f"{source.where(row)}; a trace has less than {MOST_ACCESSES}, a row at most {MOST_READS}"
        )
    return np.repeat(every, n_reads[every])
