"""Files on the machine that pulls: what hosts of caches write is read where it is."""

from __future__ import annotations

import glob
from pathlib import Path

from features.errors import InputError

BEING_WRITTEN = ".part"


def local_files(path: str) -> list[Path]:
    """The file at `path`, the files in that folder, or those of a glob, in order of their names.

    Hidden files and files still being written (`.part`) are left out of folders and globs. Raises InputError
    if nothing is there.
    """
    place = Path(path)
    if place.is_file():
        return [place]
    found = sorted(place.iterdir()) if place.is_dir() else sorted(map(Path, glob.glob(path)))  # noqa: PTH207
    if not found and not place.is_dir():
        raise InputError(f"cannot read {path}: there is no such file; is the path right?")
    return [
        file
        for file in found
        if file.is_file() and not file.name.startswith(".") and file.suffix != BEING_WRITTEN
    ]
