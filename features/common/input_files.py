"""Files to read from folders that others write to: only plain ones, and no link below the given path."""

import dataclasses
import io
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from features.common.errors import NotPlainError

PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""How files with such a suffix are compressed, by Arrow's names."""
_BLOCK_BYTES = 512
_PATH_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""A descriptor that names a file without opening it."""
_MOST_LINKS = 40
_MOST_EXPANSION = 200
"""A file with holes, or a compressed one, may hold this many times the bytes it takes on disk."""
_ALWAYS_ALLOWED_BYTES = 256 * 2**20
"""Every file may hold this much, however few bytes it takes."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclasses.dataclass(frozen=True, order=True)
class InputFile:
    """A file or folder to read: the path `given` by an operator, or one `below` the given folder.

    The given path may be a link, or lie behind one, if root or this account made the link. No link below it
    is followed, and only plain files are opened. `is_listed`: a file that was listed in a folder. `address`:
    its URI if it is not on this machine; `fetch` then copies it to a path.
    """

    given: Path
    below: str = ""
    is_listed: bool = False
    address: str = ""
    fetch: Callable[[Path], None] | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def path(self) -> Path:
        return self.given / self.below

    @property
    def uri(self) -> str:
        """Its URI, the name of an input."""
        return self.address or self.path.absolute().as_uri()

    def __fspath__(self) -> str:
        return self.address or str(self.path)

    def status(self) -> os.stat_result:
        """Its status; for a link that was given, the status of what it leads to. Raises OSError."""
        return self.path.stat(follow_symlinks=not self.below)


@contextmanager
def plain(file: Path | InputFile) -> Iterator[str]:
    """A name under which readers can open the plain file; no other file can take its place in the block.

    A path counts as given. A file on another machine is copied, and the copy removed after the block. Raises
    NotPlainError, also for a file that is hardly more than holes, and OSError as `open` does.
    """
    source = file if isinstance(file, InputFile) else InputFile(file)
    if source.fetch is not None:
        with tempfile.TemporaryDirectory(prefix="cachecast-pull-") as private:
            source.fetch(copy := Path(private, "copy"))
            with plain(copy) as name:
                yield name
        return
    with _descriptor_of(source) as descriptor:
        if (kind := _kind(descriptor)) is not None:
            raise NotPlainError(str(source.path), kind)
        status = os.fstat(descriptor)
        if status.st_size > _most_bytes(status.st_blocks * _BLOCK_BYTES):
            raise NotPlainError(
                str(source.path), f"all holes, more than {_MOST_EXPANSION} times what it takes on disk"
            )
        yield f"/proc/self/fd/{descriptor}"


class Unpacked(io.RawIOBase):
    """The content of the plain file at `name` (see `plain`), decompressed by the suffix of `file`.

    `packing`: how it is compressed, whatever its suffix. Reading raises NotPlainError once the content is far
    larger than the file, and Arrow's errors.
    """

    def __init__(self, name: str, file: Path | InputFile, packing: str | None = None) -> None:
        packing = packing or PACKED.get(Path(file).suffix)
        self._label = os.fspath(file)
        self._left_bytes = _most_bytes(Path(name).stat().st_size) if packing else sys.maxsize
        self._stream = pa.input_stream(name, compression=packing)

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset in the decompressed content; see `io.RawIOBase.seek`."""
        return int(self._stream.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        """Read some of the decompressed content; see `io.RawIOBase.readinto`."""
        content = self._stream.read(len(buffer))
        self._left_bytes -= len(content)
        if self._left_bytes < 0:
            raise NotPlainError(self._label, f"packed, and {_MOST_EXPANSION} times as long as it looks")
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _most_bytes(n_bytes: int) -> int:
    """The most that a file may hold which takes `n_bytes` on disk."""
    return max(_ALWAYS_ALLOWED_BYTES, _MOST_EXPANSION * n_bytes)


def inside(folder: InputFile) -> dict[str, bool] | None:
    """The names in `folder`, and whether each is a folder; None if `folder` is none. Raises OSError."""
    with _descriptor_of(folder) as descriptor:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return None
        with os.scandir(f"/proc/self/fd/{descriptor}") as entries:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}


def _kind(descriptor: int) -> str | None:
    mode = stat.S_IFMT(os.fstat(descriptor).st_mode)
    return None if mode == stat.S_IFREG else _KINDS.get(mode, "of an unknown kind")


@contextmanager
def _descriptor_of(file: InputFile) -> Iterator[int]:
    """A descriptor of `file` without opening it: a pipe would wait for a writer, a device may act."""
    descriptor = _open_given(file.given)
    try:
        for part in Path(file.below).parts:
            outer = descriptor
            try:
                descriptor = os.open(part, _PATH_FLAGS, dir_fd=outer)
            except NotADirectoryError:
                raise NotPlainError(str(file.path), "behind a link") from None
            finally:
                if descriptor != outer:
                    os.close(outer)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_given(path: Path) -> int:
    """A descriptor of `path`: each link on the way, and the last one, must be root's or this account's."""
    left, n_links = [*reversed(path.parts)], 0
    descriptor = os.open(".", _PATH_FLAGS)
    try:
        while left:
            inner = os.open(left.pop(), _PATH_FLAGS, dir_fd=descriptor)
            status = os.fstat(inner)
            if not stat.S_ISLNK(status.st_mode):
                descriptor, inner = inner, descriptor
                os.close(inner)
                continue
            target = Path(os.readlink("", dir_fd=inner))
            os.close(inner)
            n_links += 1
            if status.st_uid not in (0, os.geteuid()):
                where = "behind a link of another account" if left else "a link of another account"
                raise NotPlainError(str(path), where)
            if n_links > _MOST_LINKS:
                raise NotPlainError(str(path), "a link to itself")
            left += reversed(target.parts)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
