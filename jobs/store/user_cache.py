"""Where we keep what can be had again: login tokens, programs that scripts of conf/deploy fetch."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """Our folder of that name in the user's cache; made by who writes there."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cachecast" / name
