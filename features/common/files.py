"""Files that are written whole or not at all, and a place for those that can be made again."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(path: Path, *, mode: int | None = None, settle: bool = True) -> Iterator[Path]:
    """The path of a new, empty file, which replaces `path` in one step when the block ends.

    If the block raises, the new file is removed and `path` stays as it was. `mode`: its rights; None: those
    that the umask leaves. `settle`: wait until its bytes are on the disk before it replaces `path`. Raises
    OSError.
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


def user_cache(name: str) -> Path:
    """The folder `name` in the user's cache, for files that can be made again; its writer creates it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cachecast" / name
