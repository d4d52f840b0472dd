"""Writing files whole or not at all, checking files with secrets, the user's cache folder, hung mounts."""

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from features.common.errors import ConfigError

_NOT_MISLED = os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def replaced(path: Path, *, mode: int | None = None, settle: bool = True) -> Iterator[Path]:
    """The path of a new, empty file, which replaces `path` in one step when the block ends.

    Its folder is made if it is missing. If the block raises, the new file is removed and `path` stays as it
    was. `mode`: its permissions; None: those that the umask leaves. `settle`: wait until its bytes are on the
    disk before it replaces `path`. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # a pipe would wait for a writer
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_own(path: Path, most_bytes: int) -> bytes:
    """The bytes of a plain file that nobody but root and this account can change. Raises OSError.

    No link is followed, and nothing is opened that could hang.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NOT_MISLED)) as opened:
        status, others = os.fstat(opened.fileno()), stat.S_IWGRP | stat.S_IWOTH
        is_plain = stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid())
        if not is_plain or status.st_mode & others:
            raise OSError(errno.EPERM, "it is no plain file that this account alone can change")
        content = opened.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


def check_private(path: Path, what: str, setting: str) -> None:
    """Raise ConfigError, which names `setting`, unless `path` is a plain file for this account alone."""
    if (problem := private_fault(path, what)) is not None:
        raise ConfigError(setting, problem)


def private_fault(path: Path, what: str) -> str | None:
    """Why `path` is not a plain file that only this account can read, and the remedy; None: it is."""
    try:
        status = path.lstat()
    except OSError as error:
        return f"cannot read {what} {path}: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return f"{what} {path} is no plain file; name the file itself"
    if status.st_uid != os.geteuid():
        return f"{what} {path} belongs to another user; chown it to the one that runs this"
    if mode := stat.S_IMODE(status.st_mode) & 0o177:
        return f"{what} {path} is open to others (bits {mode:04o}); chmod 0600 it"
    return None


def user_cache(name: str) -> Path:
    """The folder `name` in the user's cache, for files that can be made again; its writer creates it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cachecast" / name


ANSWERS_WITHIN_S = 60.0
"""A disk that wakes up, or a busy server of files, takes less."""


def _look(place: Path) -> None:
    with contextlib.suppress(OSError, ValueError), os.scandir(place) as names:
        next(names, None)


def silent(places: Iterable[Path], *, within_s: float = ANSWERS_WITHIN_S) -> str | None:
    """Which of `places` is on a file system that does not answer a look, in words; None: on none.

    What is missing or cannot be read is an answer. A look that hangs leaves its thread behind, which ends
    with the process.
    """
    for place in places:
        looking = threading.Thread(target=_look, args=(place,), daemon=True)
        looking.start()
        looking.join(within_s)
        if looking.is_alive():
            return f"the file system of {place} does not answer within {within_s:.0f} s: mount it again"
    return None
