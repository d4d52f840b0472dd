"""Which file of Rucio a path in a cache is."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from features.common.names import parse_name

# `…/rucio/mc23_13p6TeV/ab/cd/AOD.1.root`: Rucio's own place for a file, by the MD5 of its DID.
_HASHED = re.compile(r"^.*/rucio/(.+)/([0-9a-f]{2})/([0-9a-f]{2})/([^/]+)$")


class Did(NamedTuple):
    """A name in a scope."""

    scope: str
    name: str


def did_of_path(path: str) -> Did | None:
    """The DID of the file at `path` in a cache; None where the path does not give it.

    A path by Rucio's `hash` algorithm (ATLAS) is believed if its two folders fit the DID; one of CMS is its
    own name (`identity`), in scope cms.
    """
    hashed = _HASHED.match(path)
    if hashed is not None:
        folder, one, two, name = hashed.groups()
        # Scopes of people and groups have a folder a part; no scope holds a slash.
        scope = folder.replace("/", ".")
        digest = hashlib.md5(f"{scope}:{name}".encode(), usedforsecurity=False).hexdigest()
        return Did(scope, name) if digest[:4] == one + two else None
    return Did("cms", path) if parse_name(path).experiment == "cms" and path.startswith("/store/") else None
