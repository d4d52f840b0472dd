"""Rucio's names of files, and its places for them."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class Did(NamedTuple):
    """A name in a scope."""

    scope: str
    name: str


def place_of(did: Did) -> str:
    """Where Rucio puts a file below the prefix of an RSE: a path by `identity`, another name by `hash`.

    By hash, scopes of people and groups have a folder a part, and two folders are of the MD5 of the DID.
    """
    scope, name = did
    if name.startswith("/"):
        return name
    digits = hashlib.md5(f"{scope}:{name}".encode(), usedforsecurity=False).hexdigest()
    folder = scope.replace(".", "/") if scope.startswith(("user", "group")) else scope
    return f"/{folder}/{digits[:2]}/{digits[2:4]}/{name}"
