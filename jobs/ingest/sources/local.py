"""Files on the machine that pulls: what hosts of caches write is read where it is."""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Iterator
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
    found = sorted(place.iterdir()) if place.is_dir() else places_at(path)
    shown = (file for file in found if file.is_file() and not file.name.startswith("."))
    return [file for file in shown if file.suffix != BEING_WRITTEN]


def files_at(path: str, *, whole: bool = False) -> list[Path]:
    """The files that Spark reads at `path`, a file, a folder or a glob (`traces.{01,05}*`), in order.

    Of a folder those in it, and in its folders called `key=value`; `whole`: in all. Hidden ones (`.x`, `_x`)
    are left out. Raises InputError as `local_files`.
    """
    found = itertools.chain.from_iterable(_files_in(place, whole) for place in places_at(path))
    return sorted(set(found))


def places_at(path: str) -> list[Path]:
    """The files and folders at `path`, which may be a glob, in order. Raises InputError as `local_files`."""
    place = local_path(path)
    if place.exists():
        return [place]
    found = sorted({Path(one) for form in _alternatives(str(place)) for one in glob.glob(form)})  # noqa: PTH207
    if not found:
        raise InputError(f"cannot read {path}: there is no such file; is the path right?")
    return found


def is_local(path: str) -> bool:
    """Whether `path` is on this machine's file system."""
    scheme = _SCHEME.match(path)
    return scheme is None or scheme[1] == "file"


def _alternatives(form: str) -> list[str]:
    """The globs that `form` stands for, which may hold alternatives: `{01,05}`."""
    braces = re.search("[{]([^{}]*)[}]", form)
    if braces is None:
        return [form]
    before, after = form[: braces.start()], form[braces.end() :]
    return [found for one in braces[1].split(",") for found in _alternatives(f"{before}{one}{after}")]


def _files_in(place: Path, whole: bool) -> Iterator[Path]:
    if not place.is_dir():
        yield place
        return
    for inner in place.iterdir():
        if inner.name.startswith(".") or (inner.name.startswith("_") and "=" not in inner.name):
            continue
        if not inner.is_dir():
            yield inner
        elif whole or "=" in inner.name:
            yield from _files_in(inner, whole)


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
