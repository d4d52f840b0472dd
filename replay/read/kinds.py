"""The kind of trace at a path, detected by its content: magic bytes first, then whether it is text."""

from __future__ import annotations

import codecs
import struct
from pathlib import Path

import pyarrow as pa

from features.common.errors import InputError

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
    if not head:
        raise InputError(f"{path} is empty; give a trace that has accesses")
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


def open_bytes(path: Path) -> pa.NativeFile:
    """The bytes of a file, decompressed where it is gzip, zstd or bz2. Raises InputError."""
    try:
        # It is opened more than once, and a pipe would wait for a writer.
        if not path.is_file():
            raise InputError(f"{path} is not a plain file; write the trace to one")
        with path.open("rb") as file:
            head = file.read(4)
        compression = next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), None)
        return pa.input_stream(str(path), compression=compression)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({type(error).__name__}); check the path") from None


def head_of(path: Path, n_bytes: int) -> bytes:
    """The first `n_bytes`, decompressed, or all if there are fewer. Raises InputError."""
    try:
        with open_bytes(path) as stream:
            return bytes(stream.read(n_bytes))
    except OSError as error:
        raise InputError(f"{path} cannot be decompressed: {error}; fetch it again") from None


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
