"""The user's cache folder, for files that can be recreated: login tokens, programs fetched by conf/deploy."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """The folder `name` in the user's cache; its writer creates it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cachecast" / name
