"""Tables in a local folder: names by hard link, durability by fsync, locks by the kernel.

A file is durable when its content and all its parent folders are synced, up to one that was durable before. A
commit is created after the files that it names are durable, and returned once it is durable itself. A power
loss before that leaves the table at the last commit, or at the new one.
"""

from __future__ import annotations

import errno
import itertools
import os
import posixpath
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from features.common.errors import InputError, ServiceError
from features.common.files import sync_folder
from jobs.ground.store.filesystems import Store, read_parquet, write_parquet
from jobs.ground.store.locks import exclusive

_REFUSED = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "may not be used by this user"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "is no folder"),
    errno.EROFS: "is on a read-only file system",
}


class LocalStore(Store):
    """A folder of this machine; see `Store`."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made by the first write."""
        self._folder, self.root = folder, str(folder)

    def below(self, name: str) -> LocalStore:
        return LocalStore(self._folder / name)

    def exists(self) -> bool:
        with _refusals():
            return self._folder.exists()

    def names(self, folder: str = "") -> list[str]:
        try:
            with _refusals():
                return [path.name for path in (self._folder / folder).iterdir()]
        except FileNotFoundError:
            return []

    def folders(self) -> list[str]:
        return [name for name in self.names() if (self._folder / name).is_dir()]

    def read(self, name: str) -> bytes:
        with _refusals():
            return (self._folder / name).read_bytes()

    def put_if_absent(self, name: str, content: bytes) -> bool:
        path, folder = self._folder / name, posixpath.dirname(name)
        self.make_folder(folder)
        draft = path.with_name(f".{uuid.uuid4().hex}.draft")
        with _refusals(), draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        self.settle_folders([folder])
        return True

    def make_folder(self, name: str) -> None:
        missing = itertools.takewhile(lambda path: not path.exists(), (self._folder, *self._folder.parents))
        holding_new = [path.parent for path in missing]
        with _refusals():
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        for folder in holding_new:
            sync_folder(folder)

    def remove(self, name: str) -> None:
        path = self._folder / name
        if path.is_dir():
            with suppress(FileNotFoundError):  # another process removes it too
                shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def modified_s(self, name: str) -> float:
        path = self._folder / name
        return max(entry.stat().st_mtime for entry in (path, *path.rglob("*")))

    def settle_folders(self, names: Iterable[str]) -> None:
        folders = set[Path]()
        for name in names:
            path = self._folder / name
            folders |= {path, *(above for above in path.parents if above.is_relative_to(self._folder))}
        for folder in sorted(folders, reverse=True):
            sync_folder(folder)

    def read_parquet(self, name: str, *, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        with _refusals():
            return read_parquet(str(self._folder / name), columns, schema)

    def parquet_metadata(self, name: str) -> pq.FileMetaData:
        return pq.read_metadata(self._folder / name)

    def write_parquet(self, name: str, rows: pa.Table) -> str:
        with _refusals(), (self._folder / name).open("wb") as file:
            digest = write_parquet(file, rows)
            file.flush()
            os.fsync(file.fileno())
        return digest

    @contextmanager
    def exclusive(self, name: str, work: str) -> Iterator[None]:
        with ExitStack() as lock:
            with _refusals():
                lock.enter_context(exclusive(self._folder / name, work))
            yield

    def check_writable(self) -> None:
        there = next(path for path in (self._folder, *self._folder.absolute().parents) if path.exists())
        if not there.is_dir():
            raise _refused(errno.ENOTDIR, str(there))
        if not os.access(there, os.W_OK | os.X_OK):
            raise _refused(errno.EACCES, str(there))

    def unlock(self, name: str) -> str | None:
        raise InputError(
            f"{self.root}/{name} is a lock of this machine: it ends with the process that holds it"
        )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        raise _refused(error.errno, str(error.filename or error)) from None


def _refused(number: int, path: str) -> ServiceError:
    what = _REFUSED[number]
    return ServiceError(
        f"tables: {path} {what}; mend that, or name other tables by --tables or [tables] root"
    )
