"""What the tables ask of a file system, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq


class Store(Protocol):
    """A folder of some file system. Names are relative to it, with `/`; `""` is the folder itself.

    Raises ServiceError where the file system is away or refuses this user. Commits rest on one promise:
    of several `put_if_absent` of a name, however they overlap, exactly one is True.
    """

    @property
    def root(self) -> str:
        """The folder as people, Spark and `store_at` name it."""

    def below(self, name: str) -> Store:
        """The store of a folder in this one."""

    def names(self, folder: str = "") -> list[str]:
        """Names in `folder`, in no order; none where there is no such folder."""

    def folders(self) -> list[str]:
        """Names of the folders in this store, in no order; none where it does not exist."""

    def files(self, folder: str) -> list[str]:
        """Files in `folder` and below, in order, relative to this store."""

    def read(self, name: str) -> bytes:
        """A small file's content. Raises FileNotFoundError."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create `name` whole and lasting, or not at all; False if it is there already."""

    def make_folder(self, name: str) -> None:
        """Make `name` ready to be written into."""

    def remove(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing where it is gone."""

    def modified_s(self, name: str) -> float:
        """Last change of a file, or of anything in a folder, in seconds since 1970 by the store's clock.

        Raises FileNotFoundError.
        """

    def settle(self, name: str) -> str:
        """Make a written file's content last; the hex SHA-256 of it. Its name: see `settle_folders`."""

    def settle_folders(self, names: Iterable[str]) -> None:
        """Make the names in these folders last, and in those that they lie in up to this store's."""

    def read_parquet(self, name: str, *, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """The `columns` of a Parquet file whose columns are at most those of `schema`."""

    def parquet_metadata(self, name: str) -> pq.FileMetaData:
        """The footer of a Parquet file."""

    def write_parquet(self, name: str, rows: pa.Table) -> None:
        """Write `rows` as a Parquet file, in a folder that `make_folder` made."""

    def exclusive(self, name: str, what: str) -> AbstractContextManager[None]:
        """Hold the lock `name` while a block runs; `what` says who is at work. Raises ConflictError."""

    def unlock(self, name: str) -> str | None:
        """Break the lock `name`, whoever holds it; its holder, None if nobody does. Raises InputError
        where locks cannot be broken."""
