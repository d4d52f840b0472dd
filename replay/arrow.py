"""A `Trace` made from the house's Arrow tables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.errors import InputError, SchemaError
from replay.planner import BoolArray, IntArray
from replay.trace import Trace

_ACCESS_COLUMNS = ("accessed_at", "did", "size_bytes", "n_reads", "event_id")
_FILE_COLUMNS = ("did", "size_bytes")
_UNKNOWN = -1


class LoadedTrace(NamedTuple):
    """`trace`, and how many rows were left out since no source knows their file's size."""

    trace: Trace
    n_unsized_rows: int


def from_arrow(accesses: pa.Table, *, files: pa.Table | None = None) -> LoadedTrace:
    """The trace of an `accesses` table, and the number of rows dropped for want of a size.

    `accesses`: any row order; columns accessed_at, did, size_bytes, n_reads, event_id are used. Rows are
    ordered by (accessed_at, event_id); a row of k reads becomes k accesses at its time. A file's size is
    the first one an access states, else the one in `files` (did unique, size_bytes); a file that
    neither knows is dropped with its rows. Files of `files` that nobody reads follow the others: a
    planner must be able to place what will not be read. Raises SchemaError, InputError.
    """
    _require(accesses, _ACCESS_COLUMNS, "accesses")
    _refuse(accesses, "size_bytes", 0, "accesses")
    _refuse(accesses, "n_reads", 1, "accesses")
    rows = accesses.select(_ACCESS_COLUMNS).sort_by([("accessed_at", "ascending"), ("event_id", "ascending")])
    dids = rows["did"].combine_chunks().dictionary_encode()
    names: pa.StringArray = dids.dictionary.cast(pa.string())
    code: IntArray = dids.indices.to_numpy().astype(np.int64)
    size = _stated_sizes(code, rows["size_bytes"], len(names))
    if files is not None:
        names, size = _with_files(names, size, files)
    return _dense(code, names, size, rows)


def _dense(code: IntArray, names: pa.StringArray, size: IntArray, rows: pa.Table) -> LoadedTrace:
    known: BoolArray = size != _UNKNOWN
    kept = known[code]
    if not kept.any():
        raise InputError("no access has a file of known size; give size_bytes or a files table")
    dense = (np.cumsum(known) - 1)[code[kept]]
    reads = rows["n_reads"].to_numpy()[kept]
    time_s = _seconds(rows["accessed_at"])[kept]
    trace = Trace(
        time_s=np.repeat(time_s, reads),
        item=np.repeat(dense.astype(np.int32), reads),
        size_bytes=size[known],
        names=names.filter(pa.array(known)),
    )
    return LoadedTrace(trace, int((~kept).sum()))


def _require(table: pa.Table, columns: tuple[str, ...], what: str) -> None:
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise SchemaError(f"{what} has no column {', '.join(missing)}; give one that has")
    if table.num_rows == 0:
        raise InputError(f"{what} has no row; choose days or a source that has some")
    for name in columns:
        if name != "size_bytes" and table[name].null_count:
            row = pc.index(pc.is_null(table[name]), True).as_py()
            raise InputError(f"{what} row {row} has no {name}; the column must not be null")


def _refuse(table: pa.Table, column: str, least: int, what: str) -> None:
    row = pc.index(pc.less(table[column], least), True).as_py()
    if row >= 0:
        value = table[column][row].as_py()
        raise InputError(f"{what} row {row} has {column} {value}, below {least}; correct or drop the row")


def _stated_sizes(code: IntArray, column: pa.ChunkedArray, m: int) -> IntArray:
    stated = column.fill_null(_UNKNOWN).to_numpy().astype(np.int64)
    with_size = np.flatnonzero(stated != _UNKNOWN)[::-1]
    size = np.full(m, _UNKNOWN, np.int64)
    # Of repeated indices the last assignment stays: reversed, that is the first row.
    size[code[with_size]] = stated[with_size]
    return size


def _with_files(names: pa.StringArray, size: IntArray, files: pa.Table) -> tuple[pa.StringArray, IntArray]:
    _require(files, _FILE_COLUMNS, "files")
    _refuse(files, "size_bytes", 0, "files")
    dids = files["did"].combine_chunks().cast(pa.string())
    if pc.count_distinct(dids).as_py() != len(dids):
        raise InputError("files has a did twice; it needs one row per file")
    listed: IntArray = files["size_bytes"].fill_null(_UNKNOWN).to_numpy().astype(np.int64)
    place: IntArray = pc.index_in(names, value_set=dids).fill_null(-1).to_numpy().astype(np.int64)
    fallback = np.where(place >= 0, listed[place], _UNKNOWN)
    unread = pc.invert(pc.is_in(dids, value_set=names))
    extra = listed[unread.to_numpy(zero_copy_only=False)]
    return (
        pa.concat_arrays([names, dids.filter(unread)]),
        np.concatenate([np.where(size == _UNKNOWN, fallback, size), extra]),
    )


def _seconds(column: pa.ChunkedArray) -> IntArray:
    unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    if not pa.types.is_timestamp(column.type):
        raise SchemaError(f"accesses.accessed_at is {column.type}; it must be a timestamp")
    ticks: IntArray = column.cast(pa.int64()).to_numpy()
    return ticks // unit[column.type.unit]
