"""The common part of HDFS and S3, by their fsspec file systems: all but the atomic creation of a name."""

from __future__ import annotations

import abc
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from features.common.errors import ServiceError
from jobs.ground.store import locks
from jobs.ground.store.filesystems import Store, read_parquet, write_parquet


class Entry(NamedTuple):
    """A file or folder: its path in the file system, and its time of change, s since 1970."""

    path: str
    is_folder: bool
    size_bytes: int
    modified_s: float


class RemoteStore(Store):
    """A folder of a file system shared by several machines; see `Store`."""

    faults: tuple[type[Exception], ...] = (OSError, RuntimeError)
    """Exceptions of the file system if it is unavailable or refuses access."""

    def __init__(self, root: str, filesystem: fsspec.AbstractFileSystem, folder: str) -> None:
        """`folder`: the path of `root` in `filesystem`."""
        self.root = root
        self._fs = filesystem
        self._folder = folder

    @abc.abstractmethod
    def _modified_s(self, info: Mapping[str, Any]) -> float:
        """Time of the last change of a file or folder, 0 if unknown."""

    def exists(self) -> bool:
        with self._service_errors():
            try:
                self._fs.info(self._folder)
            except FileNotFoundError:
                return False
        return True

    def names(self, folder: str = "") -> list[str]:
        return [posixpath.basename(entry.path) for entry in self._inside(self._path(folder))]

    def folders(self) -> list[str]:
        return [posixpath.basename(entry.path) for entry in self._inside(self._folder) if entry.is_folder]

    def _inside(self, path: str) -> list[Entry]:
        """What is in a folder; nothing if it is not there."""
        with self._service_errors(), suppress(FileNotFoundError):
            return list(map(self._entry, self._fs.ls(path, detail=True)))
        return []

    def entry(self, name: str) -> Entry:
        """What is at `name`, whatever characters it has. Raises FileNotFoundError."""
        with self._service_errors():
            return self._entry(self._fs.info(self._path(name)))

    def matching(self, pattern: str) -> list[Entry]:
        """What `pattern`, a glob, fits, in order."""
        with self._service_errors():
            return sorted(map(self._entry, self._fs.glob(self._path(pattern), detail=True).values()))

    def inside(self, folder: Entry) -> list[Entry]:
        """What is in `folder`, in order."""
        with self._service_errors():
            infos = self._fs.ls(folder.path, detail=True)
        return sorted(entry for entry in map(self._entry, infos) if entry.path != folder.path)

    def _entry(self, info: Mapping[str, Any]) -> Entry:
        is_folder = info["type"] == "directory"
        return Entry(info["name"].rstrip("/"), is_folder, info["size"] or 0, self._modified_s(info))

    def uri_of(self, path: str) -> str:
        return f"{self.root.removesuffix(self._folder)}{path}"

    def fetch(self, path: str, to: Path) -> None:
        with self._service_errors():
            self._fs.get_file(path, str(to))

    def read(self, name: str) -> bytes:
        with self._service_errors():
            return bytes(self._fs.cat_file(self._path(name)))

    def settle_folders(self, names: Iterable[str]) -> None:
        """Do nothing: a NameNode, or S3, answers when a name is durable."""

    def check_writable(self) -> None:
        """Nothing is clear without the server, which refuses the first write."""

    def _holds(self, name: str, content: bytes) -> bool:
        try:
            return self.read(name) == content
        except FileNotFoundError:
            return False

    def remove(self, name: str) -> None:
        with self._service_errors(), suppress(FileNotFoundError):
            self._fs.rm(self._path(name), recursive=True)

    def modified_s(self, name: str) -> float:
        path = self._path(name)
        with self._service_errors():
            below = self._fs.find(path, detail=True).values()
            return max(self._modified_s(info) for info in (self._fs.info(path), *below))

    def read_parquet(self, name: str, *, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        with self._service_errors():
            return read_parquet(self._path(name), columns, schema, filesystem=self._fs)

    def parquet_metadata(self, name: str) -> pq.FileMetaData:
        with self._service_errors():
            return pq.read_metadata(self._path(name), filesystem=self._fs)

    def write_parquet(self, name: str, rows: pa.Table) -> str:
        with self._service_errors(), self._fs.open(self._path(name), "wb") as file:
            return write_parquet(file, rows)

    def exclusive(self, name: str, work: str) -> AbstractContextManager[None]:
        return locks.leased(self, name, work)

    def unlock(self, name: str) -> str | None:
        return locks.broken(self, name)

    def _path(self, name: str) -> str:
        return posixpath.join(self._folder, name) if name else self._folder

    @contextmanager
    def _service_errors(self) -> Iterator[None]:
        """Turn errors of the file system into ServiceError, except existing and missing names."""
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except self.faults as error:
            reason = str(error).split("\\n")[0].split("\n")[0] or type(error).__name__
            raise ServiceError(
                f"{self.root}: {reason}; is it up, and may this user read and write there?"
            ) from None
