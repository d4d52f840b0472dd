"""Walks a cache's namespace and reads every cinfo; reads the count of bytes that the server keeps there."""

import os
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from features.common.errors import InputError, PushRejected
from prefetch.lfn import checked_lfn
from prefetch.xcache import cinfo
from prefetch.xcache.cinfo import SUFFIX

OLDER_VERSIONS: Final = (1, 2, 3)
# The cache rewrites a cinfo in place, so a reader may meet half of a young one.
YOUNG_S = 10.0
_USUAL_BYTES = 8192
_REREAD_S = 0.02
_LOST_AND_FOUND = "/lost+found"
# XRootD 5.8 keeps a snapshot of its statistics here, with a cinfo, and never purges it. Any other file in the
# folder is one that jobs read: an origin may have a folder of this name too.
_COUNTS = "/pfc-stats/DirStat.json"
_COUNTED = re.compile(
    rb'"m_usage_update_time": *([0-9]{1,12}),.*?"m_file_usage": *([0-9]{1,19})[,\s]', re.DOTALL
)
_HEAD_BYTES = 4096
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class WalkedFile(NamedTuple):
    """A file of the cache and its cinfo; `info` is None if the cinfo cannot be used, and `fault` says why.

    Equal faults have equal words in `fault`; `detail` is for people. `is_folder`: the name is that of a
    folder that cannot be read.
    """

    name: str
    info: cinfo.CInfo | None
    fault: str = ""
    detail: str = ""
    is_folder: bool = False


class Part(NamedTuple):
    """One of the `n_parts` into which the folders of a namespace are divided; `number` counts from 0."""

    number: int
    n_parts: int


WHOLE: Final = Part(0, 1)


class ServerCount(NamedTuple):
    """The bytes on disk that a server has counted in its cache's files, at `at_s`, s since 1970."""

    at_s: int
    n_bytes: int


def server_count(namespace: Path) -> ServerCount | None:
    """The count by which the server purges (XRootD 5.8); None if there is none.

    Until the server restarts, it includes files that others have removed.
    """
    try:
        with os.fdopen(os.open(f"{namespace}{_COUNTS}", _READ_FLAGS), "rb") as file:
            match = _COUNTED.search(file.read(_HEAD_BYTES))
    except OSError:
        return None
    return None if match is None else ServerCount(*map(int, match.groups()))


def walk(namespace: Path, spaces: Sequence[Path] = (), part: Part = WHOLE) -> Iterator[WalkedFile]:
    """Every cinfo below `namespace`, in no promised order and without a list in memory.

    `part`: of the folders. Links are refused, also to folders, except for a cinfo that lies in one of
    `spaces`: with `oss.space` the namespace consists of links. Left out are files that vanish meanwhile, an
    empty cinfo whose file is empty too, a file system's own `/lost+found` and the cache's own statistics.
    Raises InputError if `namespace` is no folder that can be read, and after the last file if another folder
    is in its place by then.
    """
    status_at_start = _status(namespace)
    roots = tuple(f"{os.path.realpath(space)}/" for space in spaces)
    folders = [""]
    while folders:
        folder = folders.pop()
        is_in_part = zlib.crc32(os.fsencode(folder)) % part.n_parts == part.number
        try:
            entries = os.scandir(f"{namespace}{folder}")
        except OSError as error:
            if not folder:
                raise InputError(f"cannot read namespace {namespace}: {error.strerror}") from error
            if is_in_part and not isinstance(error, FileNotFoundError | NotADirectoryError):
                yield WalkedFile(
                    folder, None, _unreadable(error), f"{folder[:200]}: a folder", is_folder=True
                )
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if (name := f"{folder}/{entry.name}") != _LOST_AND_FOUND:
                        folders.append(name)
                elif is_in_part and (file := _read_entry(entry, folder, roots)):
                    yield file
    if not os.path.samestat(status_at_start, _status(namespace)):
        raise InputError(f"namespace {namespace} was another folder when its walk began: is it mounted?")


def _status(namespace: Path) -> os.stat_result:
    try:
        return namespace.stat()
    except OSError as error:
        raise InputError(f"cannot read namespace {namespace}: {error.strerror}") from error


def _read_entry(entry: os.DirEntry[str], folder: str, roots: tuple[str, ...]) -> WalkedFile | None:
    """The file whose cinfo `entry` is, or a link that is not followed; None for any other entry."""
    if not entry.name.endswith(SUFFIX):
        # With `oss.space` data are links into disks that this account need not be able to look at.
        is_link = entry.is_symlink() and os.path.isdir(entry.path)  # noqa: PTH112  a path raises
        name = f"{folder}/{entry.name}"
        return WalkedFile(name, None, "a link, not followed", name) if is_link else None
    path, lfn = entry.path, f"{folder}/{entry.name[: -len(SUFFIX)]}"
    if lfn == _COUNTS:
        return None
    if entry.is_symlink():
        path = os.path.realpath(path)
        if not (roots and path.startswith(roots)):
            return WalkedFile(lfn, None, "a link, not followed", lfn)
    elif not entry.is_file(follow_symlinks=False):
        return WalkedFile(lfn, None, "no plain file", lfn)
    try:
        file = _read(path, checked_lfn(lfn)) or _lost(entry.path, lfn)
    except PushRejected as error:
        return WalkedFile(lfn, None, "not a usable file name", str(error))
    if file is not None and file.info is not None and (why := cinfo.doubt(file.info, entry.path)):
        return WalkedFile(lfn, None, why, lfn)
    return file


def _read(path: str, lfn: str) -> WalkedFile | None:
    """The file `lfn` by its cinfo at `path`; None if there is no cinfo, or it is still empty."""
    try:
        content = _content(path)
        try:
            return WalkedFile(lfn, cinfo.parse(content)) if content else None
        except InputError:
            if time.time() - Path(path).stat().st_mtime >= YOUNG_S:
                raise
        time.sleep(_REREAD_S)  # it may be written just now
        content = _content(path)
        return WalkedFile(lfn, cinfo.parse(content)) if content else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return WalkedFile(lfn, None, _unreadable(error), f"{lfn}: {error.strerror}")
    except InputError as error:
        return WalkedFile(lfn, None, _fault(content), f"{lfn}: {error}")


def _lost(path: str, lfn: str) -> WalkedFile | None:
    """The fault of a record at `path` that cannot be read; None if it is gone, or being written.

    With `oss.space` a record may be a link into a disk that is not mounted; after a crash of the machine a
    record may be empty beside a file that is not.
    """
    record = Path(path)
    try:
        status = record.stat()
        is_old = not status.st_size and time.time() - status.st_mtime > YOUNG_S
        is_lost = is_old and record.with_suffix("").stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        linked = record.is_symlink() and not record.exists()
        return WalkedFile(lfn, None, "a link to nothing", f"{lfn}: is its space mounted?") if linked else None
    except OSError as error:
        return WalkedFile(lfn, None, _unreadable(error), f"{lfn}: {error.strerror}")
    return (
        WalkedFile(lfn, None, "an empty cinfo", f"{lfn}: no byte, but its file has some") if is_lost else None
    )


def _content(path: str) -> bytes:
    """The bytes of a cinfo; of one that is too large, one byte more than the limit."""
    descriptor = os.open(path, _READ_FLAGS)
    try:
        # Few records are longer, and a buffer of the largest allowed size would cost more than all else here.
        content = os.read(descriptor, _USUAL_BYTES)
        if len(content) == _USUAL_BYTES:
            content += os.read(descriptor, cinfo.MAX_BYTES + 1 - _USUAL_BYTES)
        return content
    finally:
        os.close(descriptor)


def _unreadable(error: OSError) -> str:
    return "no permission to read" if isinstance(error, PermissionError) else "cannot be read"


def _fault(content: bytes) -> str:
    version = int.from_bytes(content[:4], "little", signed=True)
    if abs(version) in OLDER_VERSIONS:
        return f"cinfo of version {abs(version)}: only version {cinfo.VERSION} is read"
    return "damaged cinfo"
