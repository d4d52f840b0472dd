"""Java servers of this machine, from jars that a script of conf/deploy fetches."""

from __future__ import annotations

from pathlib import Path

from features.common.errors import ServiceError
from jobs.store.user_cache import user_cache


def jars(name: str, *, n: int, script: str) -> Path:
    """The folder of the `n` jars called `name`. Raises ServiceError if not all are there."""
    folder = user_cache(name)
    if len(list(folder.glob("*.jar"))) != n:
        raise ServiceError(f"{folder} does not hold the {n} jars: fetch them with conf/deploy/{script}")
    return folder
