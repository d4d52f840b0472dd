"""Formats of trace files: which one a file has, by its content, and CSV and libCacheSim's formats as tables.

libCacheSim's binary traces are little-endian records without padding.
"""

import codecs
import itertools
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from features.common.errors import InputError
from features.common.input_files import Unpacked
from replay.read.source import ColumnSource, TableSource, parquet
from replay.read.values import array_of
from replay.trace import MOST_ACCESSES

ORACLE, LCS = "oracleGeneral", "lcs"
LCS_MAGIC = 0x123456789ABCDEF0

_PARQUET_MAGIC = b"PAR1"
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_HEAD_BYTES = 4096
_STORE = "_commits"


def kind_of(path: Path, *, table: bool = False) -> str:
    """`parquet`, `csv`, `oracleGeneral` or `lcs`; one of the first two if it is known to be a `table`.

    Raises InputError for an empty file, and for a binary file of no known kind.
    """
    if path.is_dir():
        return "parquet"
    head = head_of(path, _HEAD_BYTES)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{path} is text in UTF-16; write it as UTF-8")
    if not head.removeprefix(codecs.BOM_UTF8):
        raise InputError(f"{path} is empty; give a file that has accesses")
    if head.startswith(_PARQUET_MAGIC):
        return "parquet"
    if table:
        return "csv"
    if head.startswith(struct.pack("<Q", LCS_MAGIC)):
        return LCS
    # oracleGeneral has no magic number: like libCacheSim, go by the file's name.
    if ORACLE.lower() in path.name.lower():
        return ORACLE
    if _is_text(head):
        return "csv"
    raise InputError(f"{path} is neither Parquet, CSV nor LCS; give --kind oracleGeneral if it is that")


def read_table(path: Path, names: Iterable[str]) -> ColumnSource:
    """Parquet, or a CSV file with the columns `names` as they are written. Raises InputError."""
    if not path.exists():
        raise InputError(f"there is no {path}; check the path")
    if kind_of(path, table=True) == "parquet":
        return parquet(path)
    return as_written(path, read_csv(path), names)


def open_bytes(path: Path) -> pa.NativeFile:
    """The bytes of a file, decompressed where it is gzip, zstd or bz2. Raises InputError.

    Reading raises NotPlainError once they are far more than the file has.
    """
    try:
        # It is opened more than once, and a pipe would wait for a writer.
        if not path.is_file():
            raise InputError(f"{path} is not a plain file; write the trace to one")
        with path.open("rb") as file:
            head = file.read(4)
        compression = next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), None)
        if compression is None:
            return pa.input_stream(str(path), compression=None)
        return pa.PythonFile(Unpacked(str(path), path, compression), mode="r")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({type(error).__name__}); check the path") from None


def head_of(path: Path, n_bytes: int) -> bytes:
    """The first `n_bytes`, decompressed, or all if there are fewer. Raises InputError."""
    with open_bytes(path) as stream:
        return _read_bytes(path, stream, n_bytes)


def house_parts(path: Path) -> tuple[Path, Path | None]:
    """The accesses at `path`, and the catalogue beside them: `accesses` and `files` of a folder, if any.

    Raises InputError for a table store, because only its commits say which files are current.
    """
    if not path.is_dir():
        return path, None
    accesses = _part(path, "accesses")
    if (path / _STORE).exists() or (accesses is not None and (accesses / _STORE).exists()):
        raise InputError(f"{path} is a store of tables; replay it with --tables, --from and --to instead")
    return (path, None) if accesses is None else (accesses, _part(path, "files"))


def _part(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / f"{name}.parquet", folder / name) if p.exists()), None)


def _is_text(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


_DELIMITERS = (",", ";", "\t")
_BLOCK_BYTES = 16 * 2**20
_EVERY_NAME = 2**31 - 1
_LEADING_ZERO, _PADDED = re.compile(rb'[\n,;\t]"?0[0-9]'), "^0[0-9]"


def read_csv(path: Path) -> TableSource:
    """A CSV file with a header, also .gz, .zst or .bz2; strings as dictionaries. Raises InputError."""
    table = _read_table(path, {})
    try:
        table.column_names  # noqa: B018  Arrow decodes them when they are asked for
    except UnicodeDecodeError:
        raise InputError(f"{path} cannot be read as CSV: its header is not UTF-8; correct it") from None
    return TableSource(str(path), table)


def as_written(path: Path, source: TableSource, names: Iterable[str]) -> TableSource:
    """`source`, read from `path` by `read_csv`, with the columns `names` as the file has them.

    These name something, so that 1.10 is not 1.1, 007 is not 7, and hashes beyond 64 bits, as floats, are
    not equal. Integers that are written as usual stay integers.
    """
    types = {field.name: field.type for field in source.schema if field.name in set(names)}
    whole = [name for name, kind in types.items() if pa.types.is_integer(kind)]
    lossy = [name for name, kind in types.items() if name not in whole and pa.types.is_primitive(kind)]
    as_text = [*lossy, *_padded(path, whole)]
    return (
        TableSource(str(path), _read_table(path, dict.fromkeys(as_text, pa.string()))) if as_text else source
    )


def _read_table(path: Path, types: dict[str, pa.DataType]) -> pa.Table:
    convert = pacsv.ConvertOptions(
        column_types=types,
        strings_can_be_null=True,
        auto_dict_encode=True,
        auto_dict_max_cardinality=_EVERY_NAME,
    )
    header = head_of(path, _BLOCK_BYTES // 256).split(b"\n", 1)[0].decode(errors="replace")
    parse = pacsv.ParseOptions(delimiter=max(_DELIMITERS, key=header.count))
    for use_threads in (True, False):  # with one thread, the error names the row
        options = pacsv.ReadOptions(use_threads=use_threads, block_size=_BLOCK_BYTES)
        try:
            with open_bytes(path) as stream:
                return pacsv.read_csv(
                    stream, read_options=options, parse_options=parse, convert_options=convert
                )
        except (pa.ArrowException, OSError) as error:
            first = str(error).splitlines()[0]
    raise InputError(f"{path} cannot be read as CSV: {first}; correct the row")


def _padded(path: Path, whole: Sequence[str]) -> list[str]:
    """Those of the columns of integers that have leading zeros."""
    if not whole or not _has_leading_zeros(path):
        return []
    texts = _read_table(path, dict.fromkeys(whole, pa.string())).select(whole)
    padded = [pc.any(pc.match_substring_regex(column, _PADDED)).as_py() for column in texts.columns]
    return list(itertools.compress(whole, padded))


def _has_leading_zeros(path: Path) -> bool:
    """Whether a field may be a number with leading zeros; a time of day looks like one, too."""
    with open_bytes(path) as stream:
        tail = b"\n"
        while block := stream.read(_BLOCK_BYTES):
            if _LEADING_ZERO.search(tail + block):
                return True
            tail = block[-3:]
    return False


_ORACLE_RECORD = np.dtype([("time", "<u4"), ("item", "<u8"), ("size", "<u4"), ("following", "<i8")])
_LCS_RECORD = np.dtype(
    [
        *(("time", "<u4"), ("item", "<u8"), ("size", "<i8")),
        *(("operation", "<u4"), ("ttl", "<u4"), ("following", "<i8")),
    ]
)
_LCS_HEADER_BYTES, _LCS_VERSION = 8192, 3
_CHUNK_RECORDS = 2**20
_KEPT = ("time", "item", "size")


def read_oracle_general(path: Path) -> ColumnSource:
    """oracleGeneral: 24 B a record (time, id, size in 32 bits, next access), no header. Raises InputError."""
    with open_bytes(path) as stream:
        return TableSource(str(path), _records(path, stream, _ORACLE_RECORD))


def read_lcs(path: Path) -> ColumnSource:
    """LCS version 3: an 8 KiB header, then 36 B a record with 64-bit sizes. Raises InputError."""
    with open_bytes(path) as stream:
        stated = _lcs_requests(path, _read_bytes(path, stream, _LCS_HEADER_BYTES))
        table = _records(path, stream, _LCS_RECORD)
    if table.num_rows != stated:
        raise InputError(
            f"{path} ends after record {table.num_rows}, but its header states {stated}; fetch it again"
        )
    return TableSource(str(path), table)


def _lcs_requests(path: Path, header: bytes) -> int:
    if len(header) < _LCS_HEADER_BYTES:
        raise InputError(f"{path} ends within the LCS header, before record 1; fetch it again")
    words = struct.unpack(f"<{_LCS_HEADER_BYTES // 8}Q", header)
    if words[0] != LCS_MAGIC or words[-1] != LCS_MAGIC:
        raise InputError(f"{path} is not an LCS trace: its header lacks the magic number; check --kind")
    if words[1] != _LCS_VERSION:
        raise InputError(f"{path} is LCS version {words[1]}; convert it to version 3 or CSV")
    return int(words[3])


def _records(path: Path, stream: pa.NativeFile, record: np.dtype[np.void]) -> pa.Table:
    pieces: list[pa.RecordBatch] = []
    n_records = 0
    while data := _read_bytes(path, stream, record.itemsize * _CHUNK_RECORDS):
        whole, rest = divmod(len(data), record.itemsize)
        rows = np.frombuffer(data, record, count=whole)
        # Arrow needs contiguous columns, and the fields of a record are interleaved.
        columns = [array_of(rows[name]) for name in _KEPT]
        pieces.append(pa.RecordBatch.from_arrays(columns, names=list(_KEPT)))
        n_records += whole
        if n_records > MOST_ACCESSES:
            raise InputError(f"{path} has more than {MOST_ACCESSES} records, too many for a trace; split it")
        if rest:
            raise InputError(
                f"{path} is cut off within record {n_records + 1} ({rest} of {record.itemsize} bytes); "
                "fetch it again"
            )
    types = [pa.from_numpy_dtype(record[name]) for name in _KEPT]
    return pa.Table.from_batches(pieces, schema=pa.schema(list(zip(_KEPT, types, strict=True))))


def _read_bytes(path: Path, stream: pa.NativeFile, n_bytes: int) -> bytes:
    """The next `n_bytes`, fewer only at the end; one `read` of a decompressor may return less."""
    parts: list[bytes] = []
    missing = n_bytes
    try:
        while missing and (part := stream.read(missing)):
            parts.append(part)
            missing -= len(part)
    except OSError as error:
        raise InputError(f"{path} cannot be decompressed: {error}; fetch it again") from None
    return b"".join(parts)
