"""Files on the machine that pulls: what hosts of caches write is read where it is."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from urllib.parse import unquote

from features.errors import InputError

BEING_WRITTEN = ".part"
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]*):/")


def local_files(path: str) -> list[Path]:
    """The file at `path`, the files in that folder, or those of a glob, in order of their names.

    Hidden files and files still being written (`.part`) are left out of folders and globs. Raises InputError
    if nothing is there, or `path` is on another file system.
    """
    place = local_path(path)
    if place.is_file():
        return [place]
    found = sorted(place.iterdir()) if place.is_dir() else sorted(map(Path, glob.glob(str(place))))  # noqa: PTH207
    if not found and not place.is_dir():
        raise InputError(f"cannot read {path}: there is no such file; is the path right?")
    return [
        file
        for file in found
        if file.is_file() and not file.name.startswith(".") and file.suffix != BEING_WRITTEN
    ]


def local_path(path: str) -> Path:
    """`path` (or its `file:` URI) as a path of this machine. Raises InputError for another file system."""
    scheme = _SCHEME.match(path)
    if scheme is None:
        return Path(path)
    if scheme[1] != "file":
        raise InputError(
            f"cannot read {path}: this source reads files of this machine; "
            f"copy them from {scheme[1]}:// first"
        )
    return Path(unquote(re.sub("^file:/+", "/", path)))
