"""libCacheSim's binary traces, little-endian records without padding."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa

from features.common.errors import InputError
from replay.read.bridge import array_of
from replay.read.kinds import LCS_MAGIC, open_bytes
from replay.read.source import Source, TableSource
from replay.trace import MOST_ACCESSES

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


def read_oracle_general(path: Path) -> Source:
    """oracleGeneral: 24 B a record (time, id, size in 32 bits, next access), no header. Raises InputError."""
    with open_bytes(path) as stream:
        return _table(path, _records(path, stream, _ORACLE_RECORD))


def read_lcs(path: Path) -> Source:
    """LCS version 3: an 8 KiB header, then 36 B a record with 64-bit sizes. Raises InputError."""
    with open_bytes(path) as stream:
        stated = _lcs_requests(path, stream.read(_LCS_HEADER_BYTES))
        table = _records(path, stream, _LCS_RECORD)
    if table.num_rows != stated:
        raise InputError(
            f"{path} ends after record {table.num_rows}, but its header states {stated}; fetch it again"
        )
    return _table(path, table)


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
    while data := _read(path, stream, record.itemsize * _CHUNK_RECORDS):
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


def _read(path: Path, stream: pa.NativeFile, n_bytes: int) -> bytes:
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


def _table(path: Path, records: pa.Table) -> Source:
    return TableSource(str(path), records)
