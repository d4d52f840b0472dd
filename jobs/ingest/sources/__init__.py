"""Readers of raw formats, by name. A reader is loaded when it is used."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from features.errors import ConfigError
from jobs.settings.sources import SERVERS, SOURCES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.ingest.sources.base import Pulled

# Readers of records that an origin makes too, whose client may be a cache: they are given the site's caches.
_ORIGIN_SIDE = frozenset({"cms_aaa", "cmssw_pop"})

# Readers of opens and closes: a close may come in a later pull than its open.
_IN_TWO_PARTS = frozenset({"xrootd_fstream"})

Earlier = Callable[[str, str], "DataFrame | None"]
"""The earlier accesses of a source on the days (`2026-03-01`) from … to; None: there are none."""

Reader = Callable[["SparkSession", str], "Pulled"]
"""Reads the input at a path with the site's settings."""


class Read(Protocol):
    """Reads what is at `path`.

    `salt` hashes users (empty: no users); `day` (`2026-03-01`) dates records that do not say when they
    were made; `caches`, hosts and domains of caches, is for readers of an origin's records alone, `earlier`
    for those whose records come in two parts. Raises InputError if nothing is at `path`, SchemaError if
    columns are missing.
    """

    def __call__(
        self,
        spark: SparkSession,
        path: str,
        *,
        salt: str = "",
        day: str = "",
        caches: Sequence[str] = (),
        earlier: Earlier | None = None,
    ) -> Pulled: ...


def source_reader(name: str) -> Read:
    """The reader called `name`. Raises ConfigError naming those there are."""
    return cast(Read, _module(name).read)


def site_reader(
    name: str, *, salt: str, day: str, caches: Sequence[str], earlier: Earlier | None = None
) -> Reader:
    """The reader called `name` with the site's settings; see `Read`. Raises ConfigError."""
    reader = functools.partial(source_reader(name), salt=salt, day=day)
    if name in _IN_TWO_PARTS:
        return functools.partial(reader, earlier=earlier)
    return functools.partial(reader, caches=caches) if name in _ORIGIN_SIDE else reader


def reads_whole(name: str) -> bool:
    """Whether all at a path is one input, its files mean nothing alone: the reader's READS_WHOLE."""
    return bool(getattr(_module(name), "READS_WHOLE", False))


def _module(name: str) -> ModuleType:
    if name not in SOURCES:
        known = ", ".join(sorted([*SOURCES, *SERVERS]))
        raise ConfigError("source", f"there is no {name!r}; there are {known}")
    return importlib.import_module(f"jobs.ingest.sources.{name}")
