"""The file systems of tables: a local folder, HDFS or S3, chosen by the scheme of the root."""

from __future__ import annotations

import hashlib
import io
import urllib.parse
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from features.common.errors import ConfigError, without_login


def store_at(root: str) -> Store:
    """The store whose names are below `root`: a folder, `hdfs://…` or `s3a://…`. No server is contacted yet.

    Raises ConfigError for another scheme, or for a root that names no host.
    """
    try:
        scheme, _ = (url := urllib.parse.urlsplit(root)).scheme, url.port
    except ValueError:
        what = f"{without_login(root)!r} names no server; write hdfs://host:port/path or s3a://bucket/path"
        raise ConfigError("tables.root", what) from None
    if scheme == "hdfs":
        from jobs.ground.store.filesystems.hdfs import HdfsStore  # noqa: PLC0415  its library is loaded where it is used

        return HdfsStore(root)
    if scheme in ("s3a", "s3"):
        from jobs.ground.store.filesystems.s3 import S3Store  # noqa: PLC0415

        return S3Store(root)
    from jobs.ground.store.filesystems.local import LocalStore  # noqa: PLC0415  it imports this module

    at = root.removeprefix(f"{scheme}:").removeprefix("//") if scheme in ("file", "local") else root
    if (scheme and "://" in at) or "::" in at:
        raise ConfigError("tables.root", f"{root!r} is neither a folder nor hdfs:// nor s3a://")
    return LocalStore(Path(at).expanduser().absolute())


def write_parquet(file: BinaryIO, rows: pa.Table) -> str:
    """Write `rows` as Parquet to an open file, pages with checksums; returns the hex SHA-256 of the bytes.

    Floats and bytes, which seldom repeat and are not searched for, have no dictionaries and statistics.
    """
    searched = [
        field.name
        for field in rows.schema
        if not (pa.types.is_floating(field.type) or pa.types.is_binary(field.type))
    ]
    hashed = _Hashed(file)
    options = {"use_dictionary": searched, "write_statistics": searched, "write_page_checksum": True}
    pq.write_table(rows, hashed, compression="zstd", **options)
    return hashed.sha256.hexdigest()


def read_parquet(path: str, columns: Sequence[str], schema: pa.Schema, *, filesystem: Any = None) -> pa.Table:
    """The `columns` of a Parquet file; null where it lacks one. Arrow's data sets take twice the CPU.

    Texts that `schema` has as dictionaries are read as codes. Raises OSError for a page that differs from its
    checksum, or a column that has another name.
    """
    footer = pq.read_metadata(path, filesystem=filesystem)
    texts = {name for name in columns if pa.types.is_dictionary(schema.field(name).type)}
    options = {"read_dictionary": [*texts & {*footer.schema.names}], "page_checksum_verification": True}
    with pq.ParquetFile(path, metadata=footer, filesystem=filesystem, **options) as file:
        there, known = {*file.schema_arrow.names}, {*schema.names}
        if there - known and known - there:  # a footer has no checksum
            raise OSError(f"it has {sorted(there - known)} in place of {sorted(known - there)}")
        rows = file.read([name for name in columns if name in there])
        if rows.num_columns and rows.num_rows != file.metadata.num_rows:  # a header of a page says so
            raise OSError(f"it has {rows.num_rows} of {file.metadata.num_rows} rows")
    for piece in (piece for column in rows.columns for piece in column.chunks):
        codes = piece.indices.drop_null() if isinstance(piece, pa.DictionaryArray) else ()
        if len(codes) and pc.max(codes).as_py() >= len(piece.dictionary):  # Arrow's codes mean others then
            raise OSError("one of its dictionaries lists a text twice")
    lacking = {name: schema.field(name).type for name in columns if name not in rows.column_names}
    for name, kind in lacking.items():
        rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
    return rows.select(list(columns)).cast(pa.schema([(name, schema.field(name).type) for name in columns]))


class _Hashed(io.RawIOBase):
    """A file that hashes what is written to it, so that it need not be read again."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.sha256.update(content)
        return self._file.write(content)


class Store(Protocol):
    """A folder of some file system. Names are relative to it, with `/`; `""` is the folder itself.

    Raises ServiceError if the file system is unavailable or refuses this user. Commits rely on one guarantee:
    of several `put_if_absent` of a name, even concurrent ones, exactly one returns True.
    """

    root: str
    """The folder as people, Spark and `store_at` name it."""

    def below(self, name: str) -> Store:
        """The store of a folder in this one."""

    def exists(self) -> bool:
        """Whether the folder is there, or a file in its place."""

    def names(self, folder: str = "") -> list[str]:
        """Names in `folder`, in no order; none if there is no such folder."""

    def folders(self) -> list[str]:
        """Names of the folders in this store, in no order; none if it does not exist."""

    def read(self, name: str) -> bytes:
        """A small file's content. Raises FileNotFoundError."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create `name` completely and durably, or not at all; False if it exists."""

    def make_folder(self, name: str) -> None:
        """Make the folder `name`, so that files can be written into it."""

    def check_writable(self) -> None:
        """Raise ServiceError if this user cannot write here, as far as is known without a server."""

    def remove(self, name: str) -> None:
        """Delete a file, or a folder with its content, if it exists."""

    def modified_s(self, name: str) -> float:
        """Last change of a file, or of any in a folder, s since 1970. Raises FileNotFoundError."""

    def settle_folders(self, names: Iterable[str]) -> None:
        """Make the names in these folders durable, and in their parents up to this store."""

    def read_parquet(self, name: str, *, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """The `columns` of a Parquet file whose columns are at most those of `schema`."""

    def parquet_metadata(self, name: str) -> pq.FileMetaData:
        """The footer of a file."""

    def write_parquet(self, name: str, rows: pa.Table) -> str:
        """Write `rows` as a Parquet file, in a folder that `make_folder` made; returns its hex SHA-256.

        Its content is durable then; for its name see `settle_folders`.
        """

    def exclusive(self, name: str, work: str) -> AbstractContextManager[None]:
        """Hold the lock `name` while a block runs; `work`: the kind of work. Raises ConflictError."""

    def unlock(self, name: str) -> str | None:
        """Break a lock; its holder, if any. Raises InputError if locks cannot be broken."""
