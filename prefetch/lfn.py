"""Names of files: the check before one becomes a path, a URL or a command, and Rucio's names and places."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from features.common.errors import PushRejected

MAX_NAME_BYTES = 1024
# A file system allows 255 bytes, of which the cache needs six for its `.cinfo`.
MAX_COMPONENT_BYTES = 249
COMMAND_ROOT = "xrdpfc_command"
_PLAIN = re.compile(rf"(?:/[\w+=:,@~-][\w.+=:,@~-]{{0,{MAX_COMPONENT_BYTES - 1}}})+", re.ASCII)
_SLASHES = re.compile("//+")
_URL_SYNTAX = frozenset("?#\\")
_BAD_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def checked_lfn(name: str) -> str:
    """`name` itself, if it is a plain absolute path that means the same as path, URL and cache command.

    Refused with PushRejected: relative paths; empty, `.` and `..` components; control, format and
    surrogate characters; `?`, `#` and backslashes; components that begin or end with white space;
    XCache's command space and its `.cinfo` files; more than 1024 bytes, or 249 in a component.
    """
    if (fault := fault_of(name)) is not None:
        raise PushRejected(f"not a usable file name: {name[:200]!r}: {fault}")
    return name


def fault_of(name: str) -> str | None:
    """Why `checked_lfn` refuses `name`; None if it does not."""
    return None if _is_plain(name) else _fault(name)


def reported(name: str) -> str:
    """The file that a server's report calls `name`: some leave out the slash before it, or write two."""
    return _SLASHES.sub("/", f"/{name}")


def path_below(root: Path, name: str, suffix: str = "", *, spaces: Sequence[Path] = ()) -> Path:
    """The path of file `name` in `root`, or by a link in `spaces`; PushRejected if it leads elsewhere."""
    path = root / (checked_lfn(name)[1:] + suffix)
    target = Path(os.path.realpath(path))  # `resolve` fails of a link to itself
    if not any(target.is_relative_to(os.path.realpath(folder)) for folder in (root, *spaces)):
        raise PushRejected(f"file {name[:200]!r} leads out of its folder by a link")
    return path


def _is_plain(name: str) -> bool:
    """Whether `name` is so plain, as most are, that it has no fault; quicker than `_fault`, which says."""
    return (
        _PLAIN.fullmatch(name) is not None
        and len(name) <= MAX_NAME_BYTES
        and not name.startswith(f"/{COMMAND_ROOT}")
        and not name.endswith(".cinfo")
    )


def _fault(name: str) -> str | None:
    if any(unicodedata.category(character) in _BAD_CATEGORIES for character in name):
        return "holds a control character"
    components = name[1:].split("/")
    faults = {
        "must begin with /": not name.startswith("/"),
        "holds one of ? # \\": bool(_URL_SYNTAX & set(name)),
        f"longer than {MAX_NAME_BYTES} bytes": len(name.encode()) > MAX_NAME_BYTES,
        "is a command of the cache": components[0] == COMMAND_ROOT,
        "is the cache's own record of a file": name.endswith(".cinfo"),
    }
    of_name = next((fault for fault, applies in faults.items() if applies), None)
    return of_name or next(filter(None, map(_component_fault, components)), None)


def _component_fault(component: str) -> str | None:
    if component in ("", ".", ".."):
        return "has an empty, . or .. component"
    if component != component.strip():
        return "has white space at the edge of a component"
    if len(component.encode()) > MAX_COMPONENT_BYTES:
        return f"has a component longer than {MAX_COMPONENT_BYTES} bytes"
    return None


class Did(NamedTuple):
    """A name in a scope."""

    scope: str
    name: str


def place_of(did: Did) -> str:
    """Path of a file below an RSE's prefix, by Rucio's algorithm `identity` for a path, else by `hash`.

    By hash, each part of a user's or group's scope is a folder, and the MD5 of the DID names two more.
    """
    scope, name = did
    if name.startswith("/"):
        return name
    digits = hashlib.md5(f"{scope}:{name}".encode(), usedforsecurity=False).hexdigest()
    folder = scope.replace(".", "/") if scope.startswith(("user", "group")) else scope
    return f"/{folder}/{digits[:2]}/{digits[2:4]}/{name}"
