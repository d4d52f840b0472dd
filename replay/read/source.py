"""Sources of columns: a table in memory, or Parquet files that are read one column at a time.

Whatever wrote them, a column of bytes that are UTF-8 is one of strings, and one of decimals one of numbers:
Hive's strings are plain bytes, Oracle's whole numbers are decimals.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from features.common.errors import InputError, SchemaError

_Read = TypeVar("_Read")

_WIDE_BITS = 128
_NEVER_REPEATED = ("event_id",)
"""Columns of unique values, for which a dictionary would be larger than the column."""


class ColumnSource(Protocol):
    """A table that is read by column; messages call it `label`. A reader of another format gives one:

    >>> from replay.read.assemble import EVERYTHING, Choice, assemble
    >>> from replay.read.roles import foreign_roles
    >>> lines = ["10 /a 5", "11 /b 7", "12 /a 5"]
    >>> time, item, size = zip(*(line.split() for line in lines))
    >>> source = TableSource("my.log", pa.table({"time": time, "item": item, "size": size}))
    >>> trace = assemble(source, foreign_roles(source, {}), Choice(EVERYTHING)).trace
    >>> trace.time_s.tolist(), trace.item.tolist(), trace.size_bytes.tolist()
    ([10, 11, 12], [0, 1, 0], [5, 7])
    """

    label: str
    schema: pa.Schema

    def take(self, name: str) -> pa.ChunkedArray:
        """The column `name`; each column can be taken once, so that no second copy is kept."""

    def where(self, row: int) -> str:
        """Where row `row` (from 0) is, for example `reads.csv row 18` (data rows count from 1)."""


class TableSource:
    """A table in memory; each column is released when it is taken."""

    def __init__(self, label: str, table: pa.Table) -> None:
        self.label = label
        self.schema = _plain_schema(table.schema)
        self._columns: dict[str, pa.ChunkedArray] = dict(zip(table.column_names, table.columns, strict=True))

    def take(self, name: str) -> pa.ChunkedArray:
        """The column `name`. Raises SchemaError."""
        refuse_twice(self, name)
        return _plain(self, name, self._columns.pop(name))

    def where(self, row: int) -> str:
        """As `ColumnSource.where`."""
        return f"{self.label} row {row + 1}"


class ParquetSource:
    """Parquet files with the same columns, one after another; `key=value` folders are columns too."""

    def __init__(
        self, label: str, root: Path, files: Sequence[pq.ParquetFile], paths: Sequence[Path]
    ) -> None:
        self.label = label
        self._files = files
        self._paths = paths
        self._folders = [_folder_values(path.relative_to(root)) for path in paths]
        self._written = files[0].schema_arrow
        self.schema = _plain_schema(self._written)
        for key in self._folders[0]:
            self.schema = self.schema.append(pa.field(key, pa.string()))

    def take(self, name: str) -> pa.ChunkedArray:
        """The column `name`. Raises InputError, SchemaError."""
        refuse_twice(self, name)
        pieces: list[pa.Array] = []
        at = self._written.get_field_index(name)
        kind = self.schema.field(name).type if at < 0 else self._written.field(at).type
        for file, path, folder in zip(self._files, self._paths, self._folders, strict=True):
            if name in folder:
                whole = partial(pa.repeat, folder[name], file.metadata.num_rows)
                pieces.append(_parquet_read(path, whole))
            else:
                pieces += _parquet_read(path, partial(self._column, file, name, kind))
        return _plain(self, name, pa.chunked_array(pieces, kind))

    def _column(self, file: pq.ParquetFile, name: str, kind: pa.DataType) -> list[pa.Array]:
        column = file.read(columns=[name])[name]
        # Arrow believes a file that its strings are text, and that its codes name values.
        column.validate(full=True)
        if len(column) != file.metadata.num_rows:
            raise pa.ArrowInvalid(f"{name} has {len(column)} values in {file.metadata.num_rows} rows")
        return list((column if column.type == kind else column.cast(kind)).chunks)

    def where(self, row: int) -> str:
        """As `ColumnSource.where`, with the file of a folder that holds the row."""
        for file, path in zip(self._files, self._paths, strict=True):
            if row < file.metadata.num_rows:
                return f"{path} row {row + 1}"
            row -= file.metadata.num_rows
        return self.label


def parquet(path: Path, *, repeated: bool = True) -> ParquetSource:
    """A Parquet file, or all Parquet files below a folder in the order of their paths. Raises InputError.

    `repeated`: read strings as dictionaries, which are small if values repeat.
    """
    paths = _below(path) if path.is_dir() else [path]
    if not paths:
        raise InputError(f"{path} holds no Parquet file; give a file, or a folder that has some")
    if special := [file for file in paths if not file.is_file()]:
        raise InputError(f"{special[0]} is not a plain file; write the table to one")
    root = path if path.is_dir() else path.parent
    files = [_parquet_read(file, partial(_opened, file, repeated)) for file in paths]
    return ParquetSource(str(path), root, files, paths)


def _opened(path: Path, repeated: bool) -> pq.ParquetFile:
    types = pa.types
    kinds = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    texts = [f.name for f in pq.read_schema(path) if any(is_of(f.type) for is_of in kinds)]
    texts = [name for name in texts if name not in _NEVER_REPEATED]
    return pq.ParquetFile(path, read_dictionary=texts if repeated else None)


def _folder_values(path: Path) -> dict[str, str]:
    pairs = (part.partition("=") for part in path.parts[:-1])
    return {key: unquote(value) for key, equals, value in pairs if equals}


def refuse_twice(source: ColumnSource, name: str) -> None:
    """Raise SchemaError if several columns are called `name`."""
    if source.schema.names.count(name) > 1:
        raise SchemaError(f"{source.label} has several columns {name!r}; rename all but one")


def column_names(source: ColumnSource) -> str:
    """The columns of `source`, for a message."""
    return ", ".join(source.schema.names) or "none"


def _below(folder: Path) -> list[Path]:
    hidden = ("_", ".")
    return sorted(
        path
        for path in folder.rglob("*.parquet")
        if path.is_file() and not any(part.startswith(hidden) for part in path.relative_to(folder).parts)
    )


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema], schema.metadata)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain_type(kind.value_type))
    if types.is_large_binary(kind):
        return pa.large_string()
    is_text = types.is_string_view(kind) or types.is_binary_view(kind)
    if is_text or types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.string()
    return pa.float64() if types.is_decimal(kind) else kind


def _plain(source: ColumnSource, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`column` with its plain type; of decimals that are all whole, integers of 64 bits."""
    if pa.types.is_decimal(column.type):
        try:
            if column.type.bit_width < _WIDE_BITS:  # of these Arrow makes no integers
                return column.cast(pa.decimal128(38, column.type.scale)).cast(pa.int64())
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            pass
    plain = _plain_type(column.type)
    try:
        return column if column.type == plain else column.cast(plain)
    except pa.ArrowInvalid:
        raise InputError(f"{source.label}: {name} has bytes that are not UTF-8; correct them") from None


def _parquet_read(path: Path, read: Callable[[], _Read]) -> _Read:
    try:
        return read()
    except (pa.ArrowException, OSError, KeyError, UnicodeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read as Parquet: {first}; write it again") from None
