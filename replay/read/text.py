"""CSV files as tables in memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from features.common.errors import InputError
from replay.read.kinds import head_of, open_bytes
from replay.read.source import Source, TableSource

_DELIMITERS = (",", ";", "\t")
_BLOCK_BYTES = 16 * 2**20
_EVERY_NAME = 2**31 - 1


def read_csv(path: Path) -> Source:
    """A CSV file with a header, also .gz, .zst or .bz2; strings as dictionaries. Raises InputError.

    Numbers beyond 64 bits, for example hashes, are read as strings: as floats, two of them could become
    equal.
    """
    table = _read(path, {})
    try:
        table.column_names  # noqa: B018  Arrow decodes them when they are asked for
    except UnicodeDecodeError:
        raise InputError(f"{path} cannot be read as CSV: its header is not UTF-8; correct it") from None
    # Arrow reads integers beyond 64 bits as floats.
    columns = zip(table.schema, table.columns, strict=True)
    floats = [(field.name, column) for field, column in columns if pa.types.is_floating(field.type)]
    wide = {name: pa.string() for name, column in floats if _beyond_int64(column)}
    return TableSource(str(path), _read(path, wide) if wide else table)


def _read(path: Path, types: dict[str, pa.DataType]) -> pa.Table:
    convert = pacsv.ConvertOptions(
        column_types=types,
        strings_can_be_null=True,
        auto_dict_encode=True,
        auto_dict_max_cardinality=_EVERY_NAME,
    )
    parse = pacsv.ParseOptions(delimiter=_delimiter(path))
    try:
        return _parsed(path, parse, convert, use_threads=True)
    except (pa.ArrowException, OSError):
        pass
    try:
        # With one thread, the error names the row.
        return _parsed(path, parse, convert, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read as CSV: {first}; correct the row") from None


def _parsed(
    path: Path, parse: pacsv.ParseOptions, convert: pacsv.ConvertOptions, *, use_threads: bool
) -> pa.Table:
    options = pacsv.ReadOptions(use_threads=use_threads, block_size=_BLOCK_BYTES)
    with open_bytes(path) as stream:
        return pacsv.read_csv(stream, read_options=options, parse_options=parse, convert_options=convert)


def _delimiter(path: Path) -> str:
    header = head_of(path, _BLOCK_BYTES // 256).split(b"\n", 1)[0].decode(errors="replace")
    return max(_DELIMITERS, key=header.count)


def _beyond_int64(column: pa.ChunkedArray) -> bool:
    ends = pc.min_max(column).as_py()
    return any(end is not None and abs(end) >= 2.0**63 for end in (ends["min"], ends["max"]))
