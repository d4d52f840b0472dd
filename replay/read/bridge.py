"""Rows of an Arrow table as numpy, by their buffers, and the rows that are chosen.

Arrow's own conversions import pandas at first use, which takes longer than reading a small trace.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray


def values_of(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """The numbers of a column, undefined where null; a single chunk is not copied, and so not writeable."""
    # Arrow and numpy have the same names for integer types.
    dtype = np.dtype(np.float64 if column.type == pa.float64() else str(column.type))
    chunks = [_values(chunk, dtype) for chunk in column.chunks if len(chunk)]
    if len(chunks) == 1:
        return chunks[0]
    return np.concatenate(chunks) if chunks else np.empty(0, dtype)


def valid(column: pa.ChunkedArray) -> BoolArray:
    """Which rows are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.concatenate([_bits(chunk) for chunk in pc.is_valid(column).chunks])


def array_of(values: npt.NDArray[Any], *, absent: BoolArray | None = None) -> pa.Array:
    """An Arrow array over the memory of `values`; null where `absent`."""
    is_flag = values.dtype == np.bool_
    held = np.packbits(values, bitorder="little") if is_flag else np.ascontiguousarray(values)
    mask = None
    if absent is not None and absent.any():
        mask = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    kind = pa.bool_() if is_flag else pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, values.size, [mask, pa.py_buffer(held)])


def _values(chunk: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(chunk.buffers()[1], dtype, count=len(chunk), offset=chunk.offset * dtype.itemsize)


def _bits(flags: pa.Array) -> BoolArray:
    bits = np.unpackbits(np.frombuffer(flags.buffers()[1], np.uint8), bitorder="little")
    return bits[flags.offset : flags.offset + len(flags)].astype(np.bool_)


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
