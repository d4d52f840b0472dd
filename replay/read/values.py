"""Columns as numpy arrays, by their buffers, and the rows that are chosen; errors name the faulty row.

Arrow's own conversions import pandas at first use, which takes longer than reading a small trace.
"""

from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.common.errors import InputError, SchemaError
from replay.read.source import ColumnSource
from replay.trace import ItemArray


def values_of(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """The numbers of a column, undefined where null; a single chunk is not copied, and so not writeable."""
    # Arrow and numpy have the same names for integer types.
    dtype = np.dtype(np.float64 if column.type == pa.float64() else str(column.type))
    chunks = [
        np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize)
        for chunk in column.chunks
        if len(chunk)
    ]
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


def _bits(flags: pa.Array) -> BoolArray:
    bits = np.unpackbits(np.frombuffer(flags.buffers()[1], np.uint8), bitorder="little")
    return bits[flags.offset : flags.offset + len(flags)].astype(np.bool_)


Rows: TypeAlias = IntArray | None
"""Row numbers, in order; None: all rows as they are, which takes no memory."""

_Value = TypeVar("_Value", bound=np.generic)


def pick(rows: Rows, values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
    """`values` of the chosen rows."""
    return values if rows is None else values[rows]


def narrowed(rows: Rows, mask: BoolArray) -> Rows:
    """Those of `rows` for which `mask` (one entry per row of the table) is true."""
    if mask.all():
        return rows
    return np.flatnonzero(mask) if rows is None else rows[mask[rows]]


_EXACT = pa.decimal128(38, 19)
"""Whole numbers of 64 bits, and what comes after their point."""
UNKNOWN = -1
"""In place of a number that a row does not have."""


class Codes(NamedTuple):
    """`code`: a dense id per row; `values`: the value of each id."""

    code: ItemArray
    values: pa.Array


Column: TypeAlias = Codes | pa.ChunkedArray
"""A column beside the trace; strings are coded."""


def refuse_null(
    source: ColumnSource, column: pa.ChunkedArray, name: str, remedy: str = "correct or drop the row"
) -> None:
    """Raise InputError naming the first row without a value."""
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise InputError(f"{source.where(row)} has no {name}; {remedy}")


def whole_numbers(source: ColumnSource, column: pa.ChunkedArray, name: str) -> IntArray:
    """Integers, or floats and strings that are whole (`8.0`, `1e3`), as int64; UNKNOWN where null.

    Raises InputError naming the first row that is no whole number, SchemaError for other types.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = texts(source, column, name), pa.string()
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
        or pa.types.is_null(kind)
    ):
        raise SchemaError(f"{source.label}: {name} is {kind}; it must be whole numbers")
    if kind != pa.int64():
        try:
            column = _whole(column)
        except pa.ArrowInvalid:
            raise _no_whole_number(source, column, name) from None
    numbers: IntArray = values_of(column)
    if column.null_count:
        numbers = np.where(valid(column), numbers, UNKNOWN)
    return numbers


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if not pa.types.is_string(column.type):
        return column.cast(pa.int64())
    column = pc.utf8_trim_whitespace(column)
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column.cast(_EXACT).cast(pa.int64())


def texts(source: ColumnSource, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """A dictionary's values as plain strings. Raises InputError for bytes that are none."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise InputError(f"{source.label}: {name} has bytes that are not UTF-8; correct them") from None


def least(source: ColumnSource, column: pa.ChunkedArray, name: str, minimum: int) -> IntArray:
    """`whole_numbers` of at least `minimum` (UNKNOWN where null). Raises InputError naming another row."""
    numbers = whole_numbers(source, column, name)
    low = numbers < minimum
    if column.null_count:
        low &= valid(column)
    if low.any():
        row = int(low.argmax())
        raise InputError(
            f"{source.where(row)} has {name} {numbers[row]}, below {minimum}; correct or drop the row"
        )
    return numbers


def encode(source: ColumnSource, column: pa.ChunkedArray, name: str) -> Codes:
    """Dense ids of whole numbers or strings, in order of appearance unless the source has dictionaries.

    Raises InputError naming the row of a missing or negative one, SchemaError for other types.
    """
    refuse_null(source, column, name)
    if pa.types.is_floating(column.type):
        column = pa.chunked_array([array_of(whole_numbers(source, column, name))])
    kind = column.type
    if pa.types.is_integer(kind) and column.num_chunks and pc.min(column).as_py() < 0:
        row = pc.index(pc.less(column, 0), True).as_py()
        raise InputError(f"{source.where(row)} has {name} {column[row].as_py()}, below 0; correct the row")
    if not (pa.types.is_integer(kind) or is_text(kind)):
        raise SchemaError(f"{source.label}: {name} is {kind}; files are integers or strings")
    encoded = _encoded(column)
    del column  # saves memory: it can be as large as the trace
    return _codes(encoded)


def codes_of(column: pa.ChunkedArray) -> Codes:
    """Dense ids of any column; nulls get UNKNOWN."""
    return _codes(_encoded(column))


def first_known(column: pa.ChunkedArray, item: ItemArray, n_items: int) -> pa.StringArray:
    """The first value of each file that is not null, as a string; `item`: the file of each row."""
    code, values = codes_of(column)
    known = np.flatnonzero(code >= 0)[::-1]
    of_file = np.full(n_items, UNKNOWN, np.int64)
    # With repeated indices the last assignment stays, which in reversed order is the first row.
    of_file[item[known]] = code[known]
    return values.cast(pa.string()).take(array_of(of_file, absent=of_file < 0))


def _encoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with one dictionary for all chunks."""
    try:
        if pa.types.is_dictionary(column.type):
            return column.unify_dictionaries()
        return column.dictionary_encode()
    except pa.ArrowException as error:  # a dictionary of strings holds at most 2 GiB
        raise InputError(
            f"the names are too long in total ({error}); give shorter names, or numbers"
        ) from None


def _codes(column: pa.ChunkedArray) -> Codes:
    if not column.num_chunks:
        return Codes(np.zeros(0, np.int32), pa.nulls(0, pa.string()))
    code = np.empty(len(column), np.int32)
    start = 0
    for chunk in column.chunks:
        code[start : start + len(chunk)] = values_of(pa.chunked_array([chunk.indices]))
        start += len(chunk)
    if column.null_count:
        code[~valid(column)] = UNKNOWN
    return Codes(code, column.chunk(0).dictionary)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type holds strings, plain or as a dictionary."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))


def _no_whole_number(source: ColumnSource, column: pa.ChunkedArray, name: str) -> InputError:
    whole = pc.match_substring_regex(column.cast(pa.string()), r"^\s*-?\d{1,18}(\.0*)?\s*$")
    row = max(0, pc.index(whole, False).as_py())
    return InputError(
        f"{source.where(row)} has {name} {column[row].as_py()!r}, no whole number; correct the row"
    )
