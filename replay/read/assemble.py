"""A `Trace` made from the columns of a source, one column at a time."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray, short_repr
from features.common.errors import InputError, SchemaError
from features.common.memory import give_back
from features.common.units import format_bytes
from replay.read import values
from replay.read.files import (
    MissingSize,
    dense_files,
    read_files,
    refuse_overflow,
    rows_of_known_size,
)
from replay.read.roles import LABELS, Roles, house_roles, note
from replay.read.source import ColumnSource, TableSource, column_names
from replay.read.times import UTC_SECONDS, Clock, TickArray, Ticks, closes, read_ticks, reads
from replay.read.values import UNKNOWN, Codes, Column, Rows
from replay.trace import MOST_ACCESSES, Trace

SHOWN_VALUES = 8
"""Values, sites for example, that a message lists."""
_PLURAL = {"site": "sites", "activity": "activities"}
EVERYTHING: Mapping[str, str] = MappingProxyType({})


class Choice(NamedTuple):
    """Which accesses to keep (None: all), and which columns beside the trace, by role or else by name.

    `only`: those with these values of the roles site or activity. `missing_size`: see `read_trace`.
    """

    only: Mapping[str, str] = EVERYTHING
    since_s: int | None = None
    until_s: int | None = None
    keep: tuple[str, ...] = ()
    missing_size: MissingSize = None


def columns_beside(source: ColumnSource, roles: Roles, choice: Choice) -> dict[str, Column]:
    """The columns beside the trace: those to keep, and to choose or tell files by. Raises SchemaError."""
    for role in choice.only.keys() - roles.labels.keys():
        raise SchemaError(f"{source.label} has no column {role} to choose by; it has {column_names(source)}")
    names_or_roles = [*choice.keep, *choice.only, *([] if roles.house else ["dataset"])]
    columns: dict[str, Column] = {}
    for role in dict.fromkeys(names_or_roles):
        name = roles.labels.get(role) if role in LABELS else role
        if name is not None and name in source.schema.names and name not in roles.own:
            column = source.take(name)
            kind = column.type
            if not (values.is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_null(kind)):
                raise SchemaError(f"{source.label}: {name} is {kind}; it must be strings or numbers")
            columns[role] = values.codes_of(column) if values.is_text(column.type) else column
    return columns


def chosen_rows(
    source: ColumnSource, ticks: Ticks, rows: Rows, choice: Choice, beside: Mapping[str, Column]
) -> Rows:
    """Those of `rows` that `choice` keeps, by time and `beside`. Raises InputError for none, SchemaError."""
    is_kept: BoolArray = np.ones(ticks.value.size, np.bool_)
    for role, value in choice.only.items():
        is_kept &= _with(source, role, beside.get(role), value)
    if choice.since_s is not None:
        is_kept &= ticks.value >= choice.since_s * ticks.per_second
    if choice.until_s is not None:
        is_kept &= ticks.value < choice.until_s * ticks.per_second
    if not is_kept.any():
        raise InputError(f"{source.label} has no access in the time asked for; choose others")
    return values.narrowed(rows, is_kept)


def _with(source: ColumnSource, role: str, column: Column | None, value: str) -> BoolArray:
    if not isinstance(column, Codes):
        raise SchemaError(
            f"{source.label}: the {role} is no string in each row; name another column by {role}="
        )
    known: list[str] = column.values.to_pylist()
    if value not in known:
        listed = ", ".join(map(str, known[:SHOWN_VALUES])) + (", …" if len(known) > SHOWN_VALUES else "")
        raise InputError(
            f"{source.label} has no access of {role} {value!r}; its {_PLURAL[role]} are {listed}"
        )
    return np.asarray(column.code == known.index(value), np.bool_)


def _picked(column: Column, rows: Rows) -> pa.Array | pa.ChunkedArray:
    if not isinstance(column, Codes):
        return column if rows is None else column.take(values.array_of(rows))
    code = values.pick(rows, column.code)
    return pa.DictionaryArray.from_arrays(values.array_of(code, absent=code == UNKNOWN), column.values)


def in_order(source: ColumnSource, roles: Roles, ticks: Ticks, *, sort: bool) -> Rows:
    """The rows in time order: those of an `accesses` table by (time, event_id), others as they are.

    `sort`: sort the rows of a foreign table by time. Raises InputError naming the first row that is earlier
    than the one before, if it is not to be sorted; SchemaError.
    """
    if ticks.backwards and not (sort or roles.house):
        local = "; times that a clock showed twice, at the end of summer time, need --time-zone"
        raise InputError(f"{ticks.backwards}; sort the trace, or give --sort{local if ticks.is_bare else ''}")
    rows = np.argsort(ticks.value, kind="stable") if ticks.backwards else None
    if roles.event_id is None:
        return rows
    return _by_event(source, roles.event_id, rows, values.pick(rows, ticks.value))


def _by_event(source: ColumnSource, name: str, rows: Rows, ticks: TickArray) -> Rows:
    same: BoolArray = ticks[1:] == ticks[:-1]
    if not same.any():
        return rows
    column = source.take(name)
    values.refuse_null(source, column, name)
    if not (values.is_text(column.type) or pa.types.is_integer(column.type)):
        raise SchemaError(f"{source.label}: {name} is {column.type}; it must be strings or integers")
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    if rows is None and not _falls(column, same):
        return None
    tied = np.concatenate([same, [False]]) | np.concatenate([[False], same])
    at = np.flatnonzero(tied)
    rows_tied = at if rows is None else rows[at]
    pairs = pa.table({"at": values.array_of(ticks[at]), "event": column.take(values.array_of(rows_tied))})
    order = pc.sort_indices(pairs, [("at", "ascending"), ("event", "ascending")])
    ordered = np.arange(ticks.size) if rows is None else rows
    ordered[at] = rows_tied[values.values_of(pa.chunked_array([order]))]
    return ordered


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


_NOTES = (
    "rows left out, since no source knows their file's size",
    "rows that state another size than the catalogue or most rows, which counts",
    "rows that state another size than their file's first, which counts",
    "accesses that close before they open, taken as closed at once",
    "accesses that read more than their file's size, taken as read whole",
    "names that several datasets have, a file in each of them",
)


MOST_READS = 2**24
"""Most reads of one row; with more, a small file could make a trace of gigabytes."""


class LoadedTrace(NamedTuple):
    """A trace, and what happened to the rows it was made from.

    `details`: the descriptive columns to keep that exist, one row per access, strings as dictionaries.
    `notes`: a sentence for each rule that changed or dropped rows, with their number.
    """

    trace: Trace
    details: pa.Table
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return short_repr(self, "trace", "notes")


def assemble(
    source: ColumnSource,
    roles: Roles,
    choice: Choice,
    *,
    clock: Clock = UTC_SECONDS,
    sort: bool = False,
    files: ColumnSource | None = None,
) -> LoadedTrace:
    """The trace of the rows of `source`; see `read_trace` and `docs/replay.md`.

    A column is dropped as soon as it is no longer needed, since a large trace barely fits in memory.
    Raises InputError, SchemaError.
    """
    beside = columns_beside(source, roles, choice)
    ticks = read_ticks(source, roles.time, clock)
    rows = in_order(source, roles, ticks, sort=sort)
    rows = chosen_rows(source, ticks, rows, choice, beside)
    columns = read_files(
        source, roles, rows, files, dataset=beside.get("dataset"), missing_size=choice.missing_size
    )
    rows, n_unsized = rows_of_known_size(rows, columns)
    n_reads = _n_reads(source, roles.n_reads)
    rows = _repeated(source, rows, n_reads)
    item, size, names = dense_files(rows, columns)
    n_differing, n_shared, notes = columns.n_differing, columns.n_shared, columns.notes
    off = f"{n_differing} ({format_bytes(columns.differing_bytes)} off)" if n_differing else ""
    by_size = (off, 0) if roles.house else ("", n_differing)
    del columns
    refuse_overflow(source, item, size)
    time_s = ticks.seconds(rows)
    notes += _time_notes(roles, ticks, clock)
    del ticks
    close_s, n_early = closes(source, roles.close, rows, time_s, clock)
    read_bytes, n_long = reads(source, roles.read, rows, n_reads, size[item] if roles.read else size)
    labels = pa.table({name: _picked(beside[name], rows) for name in choice.keep if name in beside})
    give_back()
    trace = Trace(time_s, item, size, names=names, close_s=close_s, read_bytes=read_bytes)
    numbers = (n_unsized, *by_size, n_early, n_long, n_shared)
    counted = tuple(f"{what}: {n}" for what, n in zip(_NOTES, numbers, strict=True) if n)
    return LoadedTrace(trace, labels, (*note(source, roles), *notes, *_part_read(roles, trace), *counted))


def _time_notes(roles: Roles, ticks: Ticks, clock: Clock) -> tuple[str, ...]:
    """What is not certain about the times of a foreign table."""
    if ticks.n_twice:
        return (
            f"times that a clock of {clock.zone} shows twice, at the end of summer time, taken as the first "
            f"until the times step back: {ticks.n_twice}",
        )
    bare = f"column {roles.time}: its times have no zone, taken as UTC; if they are local, give --time-zone"
    return (bare,) if ticks.is_bare and not roles.house else ()


def _part_read(roles: Roles, trace: Trace) -> tuple[str, ...]:
    """That a foreign table says how much of the files was read, which only blocks follow."""
    if roles.house or trace.read_bytes is None:
        return ()
    whole, read = int(trace.size_bytes[trace.item].sum()), int(trace.read_bytes.sum())
    return (
        f"column {roles.read}: {format_bytes(read)} were read of files of {format_bytes(whole)}; files count "
        "whole, except where --block-size is given",
    )


def _n_reads(source: ColumnSource, name: str | None) -> IntArray | None:
    if name is None:
        return None
    column = source.take(name)
    values.refuse_null(source, column, name)
    return values.least(source, column, name, 1)


def _repeated(source: ColumnSource, rows: Rows, n_reads: IntArray | None) -> Rows:
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


def from_arrow(
    accesses: pa.Table,
    *,
    files: pa.Table | None = None,
    only: Mapping[str, str] = EVERYTHING,
    keep: Sequence[str] = (),
) -> LoadedTrace:
    """The trace of an `accesses` table, and what happened to rows without a known size.

    `accesses`: rows in any order; columns accessed_at, did and size_bytes, and if present n_reads, event_id,
    closed_at and read_bytes. Rows are ordered by (accessed_at, event_id); a row of k reads becomes k accesses
    at its time. A file's size is the one in `files` (did unique, size_bytes), else the one that most
    accesses state (`features.accesses`). A file of unknown size is dropped with its rows. Files of
    `files` that nobody reads come after the others, since a planner may place them. `only`: as in `Choice`;
    `keep`: columns to keep beside the trace.
    Raises SchemaError, InputError.
    """
    source = TableSource("accesses", accesses)
    catalogue = None if files is None else TableSource("files", files)
    return assemble(source, house_roles(source), Choice(only, keep=tuple(keep)), files=catalogue)
