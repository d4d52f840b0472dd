"""Files on the machine that pulls: what hosts of caches write is read where it is."""

import dataclasses
import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from features.common import files
from features.common.errors import InputError, NotPlainError, without_login
from features.common.input_files import InputFile, inside, plain

BEING_WRITTEN = ".part"
_MOST_LEVELS = 100  # of folders; a folder below counts as refused
_PACKED = (".gz", ".bz2", ".zst", ".parquet")
_UNPACKED = 10  # bytes in memory of a byte in a packed file, about
WILD = re.compile("[*?{[]")
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]*):/")
# A key may have a slash in it.
_LOGIN = re.compile("[A-Za-z][A-Za-z0-9+.-]*://(?:[^/]*|[^/]*:[^/]*[^]0-9/][^/]*/.*)@")


def files_at(path: str, *, whole: bool = False) -> list[InputFile]:
    """The files at `path`, a file, a folder or a glob (`traces.{01,05}*`), in order; see `finished_in`."""
    return finished_in(places_at(path), whole=whole)


def files_in(places: Iterable[InputFile], *, whole: bool = False) -> list[InputFile]:
    """The files at `places`, in order, whatever they are: links, pipes and the like are refused when read.

    Of a folder those in it, and in its folders called `key=value`; `whole`: in all. Hidden ones (`.x`, `_x`)
    and other folders are left out, but for a folder with a suffix, which stands where a file is expected.
    """
    files = itertools.chain.from_iterable(_files_in(place, whole) for place in places)
    return sorted(set(files))


def finished_in(places: Iterable[InputFile], *, whole: bool = False) -> list[InputFile]:
    """The same without files still being written (`.part`), unless an operator gave the path of one.

    Their writer may rename them at any moment.
    """
    files = files_in(places, whole=whole)
    return [file for file in files if not (file.below and file.path.suffix == BEING_WRITTEN)]


def places_at(path: str, given: str = "") -> list[InputFile]:
    """The files and folders at `path`, which may be a glob, in order.

    `given`: the path that an operator gave, if `path` was listed there as a file. Raises InputError as
    `check_there`, and if `path` is on another file system.
    """
    place, root = local_path(path), local_path(given or path)
    if not os.path.lexists(root):
        root = _before_wildcards(root)
    root = root.absolute()
    if given not in ("", path):
        return [dataclasses.replace(_below(root, place), is_listed=True)]
    if os.path.lexists(place):
        return [_below(root, place)]
    there = {form: glob.glob(form) for form in alternatives(str(place))}  # noqa: PTH207
    check_there(path, there)
    return [_below(root, name) for name in sorted({Path(name) for names in there.values() for name in names})]


def check_there(path: str, there: Mapping[str, Sequence[object]]) -> None:
    """Raise InputError if nothing is at `path`, or at one of its `alternatives` that is no glob.

    `there`: what is at each of them.
    """
    lacking = [form for form, some in there.items() if not (some or WILD.search(form))]
    if lacking or not any(there.values()):
        missing = lacking[0] if lacking and len(there) > 1 else path
        raise InputError(f"cannot read {missing}: there is no such file; is the path right?")


def check_no_login(path: str) -> None:
    """Raise InputError for a URL with a login, as messages and tables show it."""
    if _LOGIN.match(path):
        plain_url = without_login(path)
        raise InputError(f"cannot read {plain_url} by a login in its URL; give keys in the environment")


def check_answers(path: str) -> None:
    """Raise InputError if `path` is on a file system of this machine that does not answer."""
    if is_local(path) and (why := files.silent([_before_wildcards(local_path(path))])) is not None:
        raise InputError(f"cannot read {path}: {why}")


def check_plain(path: str) -> None:
    """Raise InputError unless all files at `path` and below are plain: for readers that open by name."""
    for file in files_in(places_at(path), whole=True):
        with plain(file):
            pass


def unpacked_bytes(name: str, size_bytes: int) -> int:
    return size_bytes * (_UNPACKED if name.endswith(_PACKED) else 1)


def status_of(file: InputFile) -> os.stat_result:
    """Size and times of `file`. Raises InputError."""
    try:
        return file.status()
    except OSError as error:
        raise InputError(f"cannot read {file.path}: {error.strerror}; is the path right?") from None


def _before_wildcards(place: Path) -> Path:
    return Path(*itertools.takewhile(lambda part: not WILD.search(part), place.parts))


def _below(root: Path, place: Path) -> InputFile:
    if place.absolute() == root:
        return InputFile(place)
    return InputFile(root, str(place.absolute().relative_to(root)))


def is_local(path: str) -> bool:
    """Whether `path` is on this machine's file system."""
    scheme = _SCHEME.match(path)
    return scheme is None or scheme[1] == "file"


def alternatives(form: str) -> list[str]:
    """The globs that `form` stands for, which may hold alternatives: `{01,05}`."""
    braces = re.search("[{]([^{}]*)[}]", form)
    if braces is None:
        return [form]
    before, after = form[: braces.start()], form[braces.end() :]
    return [form for word in braces[1].split(",") for form in alternatives(f"{before}{word}{after}")]


def _files_in(place: InputFile, whole: bool) -> Iterator[InputFile]:
    names = None if place.is_listed else _names(place)
    if names is None:
        yield place
        return
    for name, is_folder in names.items():
        if name.startswith(".") or (name.startswith("_") and "=" not in name):
            continue
        inner = dataclasses.replace(place, below=str(Path(place.below, name)))
        is_deep = len(Path(inner.below).parts) > _MOST_LEVELS
        if is_folder and not is_deep and (whole or "=" in name):
            yield from _files_in(inner, whole)
        elif not is_folder or is_deep or Path(name).suffix:
            yield dataclasses.replace(inner, is_listed=True)


def _names(place: InputFile) -> Mapping[str, bool] | None:
    """What is in a folder; None if it is none. Raises InputError if that cannot be read."""
    try:
        names = inside(place)
        "".join(names or ()).encode()
        return names
    except UnicodeEncodeError as error:
        name = error.object[max(0, error.start - 20) : error.end + 20]
        raise InputError(f"cannot read {place.path}: the name {name!r} is not UTF-8; rename it") from None
    except NotPlainError:
        if place.below:
            return None  # its reader refuses it, and that counts
        raise
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {place.path}: {error.strerror}; let this account read it") from None


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
