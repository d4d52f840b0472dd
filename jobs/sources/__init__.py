"""Readers of raw formats, by name. A reader is loaded when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

from features.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.sources.base import Pulled

SOURCES: dict[str, str] = {
    "rucio_traces": "jobs.sources.rucio_traces",
    "rucio_files": "jobs.sources.rucio_files",
    "xcache_gstream": "jobs.sources.xcache_gstream",
    "osdf_accesses": "jobs.sources.osdf_accesses",
    "osdf_log": "jobs.sources.osdf_log",
    "popularity_series": "jobs.sources.popularity_series",
}


class Read(Protocol):
    """Reads what is at `path`.

    `salt` hashes users (empty: no users); `day` (`2026-03-01`) dates records that do not say when they
    were made. Raises InputError if nothing is at `path`, SchemaError if columns are missing.
    """

    def __call__(self, spark: SparkSession, path: str, *, salt: str = "", day: str = "") -> Pulled: ...


def source_reader(name: str) -> Read:
    """The reader called `name`. Raises ConfigError naming those there are."""
    if name not in SOURCES:
        raise ConfigError("source", f"there is no {name!r}; there are {', '.join(sorted(SOURCES))}")
    return cast(Read, importlib.import_module(SOURCES[name]).read)
