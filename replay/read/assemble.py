"""A `Trace` made from the columns of a source, one column at a time."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from features.errors import InputError, SchemaError
from replay.kernels.jit import kernel
from replay.planner import BoolArray, IntArray
from replay.read.bridge import array_of
from replay.read.catalogue import with_catalogue
from replay.read.order import in_order
from replay.read.per_access import closes, reads
from replay.read.roles import Roles
from replay.read.rows import Rows, narrowed, pick
from replay.read.source import Source, column_names
from replay.read.times import Ticks, read_ticks
from replay.read.values import UNKNOWN, Codes, codes_of, encode, is_text, least, refuse_null
from replay.trace import ItemArray, Trace

_Detail: TypeAlias = Codes | pa.ChunkedArray


class LoadedTrace(NamedTuple):
    """A trace, and what became of the rows it was made from.

    `n_unsized_rows`: rows left out since no source knows their file's size. `details`: the descriptive
    columns asked for that exist, one row per access, strings as dictionaries. `notes`: a sentence for each
    rule that changed or dropped rows, with their number.
    """

    trace: Trace
    n_unsized_rows: int
    details: pa.Table
    notes: tuple[str, ...]


class Choice(NamedTuple):
    """Which accesses to keep (None: all), and which columns beside the trace."""

    site: str | None = None
    since_s: int | None = None
    until_s: int | None = None
    keep: tuple[str, ...] = ()


def assemble(
    source: Source,
    roles: Roles,
    choice: Choice,
    *,
    time_unit: str = "s",
    sort: bool = False,
    files: Source | None = None,
) -> LoadedTrace:
    """The trace of the rows of `source`; see `read_trace` and `docs/replay.md`. Raises InputError."""
    beside = _beside(source, roles, choice)
    ticks = read_ticks(source, roles.time, time_unit)
    rows = _chosen(source, ticks, in_order(source, roles, ticks.value, sort=sort), choice, beside)
    codes = encode(source, source.take(roles.item), roles.item)
    size, n_differ = _sizes(source, roles, codes, rows)
    names, size, listed = with_catalogue(codes.values, size, files)
    rows, n_unsized = _sized(rows, codes.code, size)
    n_reads = None if roles.n_reads is None else _n_reads(source, roles.n_reads)
    rows = _repeated(rows, n_reads)
    item, size, names = _dense(pick(rows, codes.code), size, names, listed)
    del codes
    _refuse_overflow(source, item, size)
    time_s = ticks.seconds(rows)
    del ticks
    close_s, n_early = closes(source, roles.close, rows, time_s, time_unit)
    read_bytes, n_long = reads(source, roles.read, rows, n_reads, size[item] if roles.read else size)
    details = pa.table({name: _picked(beside[name], rows) for name in choice.keep if name in beside})
    # Arrow keeps what it freed for its next column; there is none.
    pa.default_memory_pool().release_unused()
    trace = Trace(time_s, item, size, names=names, close_s=close_s, read_bytes=read_bytes)
    return LoadedTrace(trace, n_unsized, details, _notes(n_unsized, n_differ, n_early, n_long))


def _beside(source: Source, roles: Roles, choice: Choice) -> dict[str, _Detail]:
    """The columns that are no part of the trace itself: those to keep, and the site to choose by."""
    there = [name for name in source.schema.names if name not in roles]
    if choice.site is not None and "site" not in there:
        raise SchemaError(f"{source.label} has no column site to choose by; it has {column_names(source)}")
    wanted = dict.fromkeys([*choice.keep, *([] if choice.site is None else ["site"])])
    found: dict[str, _Detail] = {}
    for name in wanted:
        if name in there:
            column = source.take(name)
            found[name] = codes_of(column) if is_text(column.type) else column
    return found


def _chosen(source: Source, ticks: Ticks, rows: Rows, choice: Choice, beside: dict[str, _Detail]) -> Rows:
    kept: BoolArray = np.ones(ticks.value.size, np.bool_)
    if choice.site is not None:
        kept = _of_site(source, beside["site"], choice.site)
    if choice.since_s is not None:
        kept &= ticks.value >= choice.since_s * ticks.per_second
    if choice.until_s is not None:
        kept &= ticks.value < choice.until_s * ticks.per_second
    if not kept.any():
        raise InputError(f"{source.label} has no access in the time asked for; choose other days or sites")
    return narrowed(rows, kept)


def _of_site(source: Source, sites: _Detail, site: str) -> BoolArray:
    if not isinstance(sites, Codes):
        raise SchemaError(f"{source.label}: site is {sites.type}; it must be strings")
    known: list[str] = sites.values.to_pylist()
    if site not in known:
        listed = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        raise InputError(f"{source.label} has no access of site {site!r}; its sites are {listed}")
    kept: BoolArray = sites.code == known.index(site)
    return kept


def _sizes(source: Source, roles: Roles, codes: Codes, rows: Rows) -> tuple[IntArray, int]:
    """Bytes per file, the first stated, UNKNOWN where none is; and the number of rows that state another."""
    column = source.take(roles.size)
    if not roles.house:
        refuse_null(source, column, roles.size)
    stated = least(source, column, roles.size, 0)
    del column
    size = np.full(len(codes.values), UNKNOWN, np.int64)
    # Arrow's memory is read-only, which to numba is another type and another compilation.
    n_differ = _first_stated(pick(rows, codes.code), np.require(pick(rows, stated), requirements=["W"]), size)
    return size, int(n_differ)


@kernel
def _first_stated(code: ItemArray, stated: IntArray, size: IntArray) -> int:
    n_differ = 0
    for i in range(code.size):
        if stated[i] == UNKNOWN:
            continue
        known = size[code[i]]
        if known == UNKNOWN:
            size[code[i]] = stated[i]
        elif known != stated[i]:
            n_differ += 1
    return n_differ


def _sized(rows: Rows, code: ItemArray, size: IntArray) -> tuple[Rows, int]:
    known: BoolArray = size != UNKNOWN
    if known.all():
        return rows, 0
    kept = known[code]
    chosen = pick(rows, kept)
    if not chosen.any():
        raise InputError("no access has a file of known size; give size_bytes or a files table")
    return narrowed(rows, kept), int(chosen.size - chosen.sum())


def _n_reads(source: Source, name: str) -> IntArray:
    column = source.take(name)
    refuse_null(source, column, name)
    return least(source, column, name, 1)


def _repeated(rows: Rows, n_reads: IntArray | None) -> Rows:
    """Each row as often as it has reads."""
    if n_reads is None or (n_reads == 1).all():
        return rows
    every = np.arange(n_reads.size) if rows is None else rows
    return np.repeat(every, n_reads[every])


def _dense(
    item: ItemArray, size: IntArray, names: pa.StringArray, listed: BoolArray
) -> tuple[ItemArray, IntArray, pa.StringArray]:
    """Ids without gaps: files that are read or listed."""
    kept = listed & (size != UNKNOWN)
    kept[item] = True
    if kept.all():
        return item, size, names
    dense = (np.cumsum(kept) - 1).astype(np.int32)
    return dense[item], size[kept], names.filter(array_of(kept))


def _refuse_overflow(source: Source, item: ItemArray, size: IntArray) -> None:
    requested = float(np.bincount(item, minlength=size.size) @ size.astype(np.float64))
    if max(requested, float(size.sum(dtype=np.float64))) >= 2.0**62:
        raise InputError(
            f"{source.label} asks for {requested:.3g} bytes in all, more than 64 bits can count; "
            "check the unit of its sizes"
        )


def _picked(detail: _Detail, rows: Rows) -> pa.Array | pa.ChunkedArray:
    if not isinstance(detail, Codes):
        return detail if rows is None else detail.take(array_of(rows))
    code = pick(rows, detail.code)
    return pa.DictionaryArray.from_arrays(array_of(code, absent=code == UNKNOWN), detail.values)


def _notes(n_unsized: int, n_differ: int, n_early: int, n_long: int) -> tuple[str, ...]:
    told = {
        "rows left out, since no source knows their file's size": n_unsized,
        "rows that state another size than their file's first, which counts": n_differ,
        "accesses that close before they open, taken as closed at once": n_early,
        "accesses that read more than their file's size, taken as read whole": n_long,
    }
    return tuple(f"{what}: {n}" for what, n in told.items() if n)
