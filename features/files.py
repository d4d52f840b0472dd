"""Files beside hostile neighbours: read only if they are plain, written whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from features.errors import NotPlainError

PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""How files with such a suffix are compressed, by Arrow's names."""
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
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
    """A file or folder to read: `given` by an operator, or `below` that folder, found there.

    What is given may be a link, if root or this account made it. No link is followed below it, and only plain
    files are opened. `is_listed`: it was found in a folder, and is no folder to look into.
    """

    given: Path
    below: str = ""
    is_listed: bool = False

    @property
    def path(self) -> Path:
        """Its path."""
        return self.given / self.below

    def __fspath__(self) -> str:
        return str(self.path)

    def status(self) -> os.stat_result:
        """Of a given link, what it leads to. Raises OSError."""
        return self.path.stat(follow_symlinks=not self.below)


@contextmanager
def plain(file: Path | InputFile) -> Iterator[str]:
    """A name of the plain file, for readers that open by name; it cannot become another file in the block.

    A path counts as given. Raises NotPlainError, and OSError as `open` does.
    """
    one = file if isinstance(file, InputFile) else InputFile(file)
    with _looked_at(one) as descriptor:
        if (kind := _kind(descriptor)) is not None:
            raise NotPlainError(str(one.path), kind)
        yield f"/proc/self/fd/{descriptor}"


def inside(folder: InputFile) -> dict[str, bool] | None:
    """The names in `folder`, and whether each is a folder; None if `folder` is none. Raises OSError."""
    with _looked_at(folder) as descriptor:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return None
        with os.scandir(f"/proc/self/fd/{descriptor}") as entries:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}


def _kind(descriptor: int) -> str | None:
    mode = stat.S_IFMT(os.fstat(descriptor).st_mode)
    return None if mode == stat.S_IFREG else _KINDS.get(mode, "of an unknown kind")


@contextmanager
def _looked_at(file: InputFile) -> Iterator[int]:
    """A descriptor that only says what `file` is: opening a pipe would wait, opening a device may act."""
    descriptor = _given(file.given)
    try:
        for part in Path(file.below).parts:
            outer = descriptor
            try:
                descriptor = os.open(part, _LOOK, dir_fd=outer)
            except NotADirectoryError:
                raise NotPlainError(str(file.path), "behind a link") from None
            finally:
                if descriptor != outer:
                    os.close(outer)
        yield descriptor
    finally:
        os.close(descriptor)


def _given(path: Path) -> int:
    for _ in range(_MOST_LINKS):
        descriptor = os.open(path, _LOOK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISLNK(status.st_mode):
                return os.dup(descriptor)
            if status.st_uid not in (0, os.geteuid()):
                raise NotPlainError(str(path), "a link of another account")
            path = path.parent / os.readlink("", dir_fd=descriptor)
        finally:
            os.close(descriptor)
    raise NotPlainError(str(path), "a link to itself")


@contextmanager
def replaced(path: Path, *, mode: int | None = None, settle: bool = True) -> Iterator[Path]:
    """A new file beside `path` that takes its place, whole, when the block ends; `settle`: once on the disk.

    If the block raises, it is removed and `path` stays as it was. `mode`: its rights; None: those that the
    umask leaves. Raises OSError.
    """
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.draft")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        if mode is not None:
            draft.chmod(mode)
        yield draft
        if settle:
            with draft.open("rb") as written:
                os.fsync(written.fileno())
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def write(path: Path, content: str | bytes, *, mode: int | None = None, settle: bool = True) -> None:
    """Replace the file at `path` by `content` (text: as UTF-8); see `replaced`."""
    with replaced(path, mode=mode, settle=settle) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
