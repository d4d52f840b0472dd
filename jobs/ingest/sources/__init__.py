"""The sources, by name, and what of a site they depend on. A source is loaded when it is used.

A source is one definition of how raw records become rows, whichever engine runs it:

- lines: `query(site)` over each line, or `query(site, header)` where a first line names the columns;
  of `cms`, whose records several sources share, a function of the source's name;
- decoded: `decode(…)` of files that only make sense one after the other, see `decoded.Decode`;
- Spark's: `read(spark, path, …)` of files that Spark alone reads.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, cast

from features.common.errors import ConfigError
from features.job_records import JOB_RECORDS
from features.schema import ACCESSES, FILES, Table
from jobs.settings.sources import CATALOGUES, OF_JOBS, SERVERS, SOURCES

if TYPE_CHECKING:
    from jobs.ingest.sources.decoded import Decode
    from jobs.ingest.sources.sql import Query

_OF_CMS = frozenset({"cms_aaa", "cmssw_pop"})
_HEADED = frozenset({"atlas_popularity", "osdf_accesses", "panda_jobs", "popularity_series"})
_DECODED = frozenset({"xcache_gstream", "xcache_cinfo", "xrootd_fstream"})
_OF_SPARK = frozenset({"rucio_dumps"})
# Their files mean nothing alone: all at a path is one input.
_WHOLE = frozenset({"rucio_dumps", "xcache_cinfo", "xrootd_fstream"})


@dataclasses.dataclass(frozen=True)
class Site:
    """The site's settings that sources depend on.

    `salt` hashes users (empty: no users). `day` (`2026-03-01`) dates records that do not state when they were
    made. `caches`: hosts and domains of caches, to distinguish a cache's own reads from those of jobs.
    `storages`, `job_sites`: patterns of the storages, and of the sites of jobs, that count where a source
    names one (none: all count). `test_files`: patterns of names that only monitoring reads.
    `scopes`: Rucio's scopes by beginnings of paths, of files whose paths do not tell them.
    """

    salt: str = ""
    day: str = ""
    caches: tuple[str, ...] = ()
    storages: tuple[str, ...] = ()
    job_sites: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
    scopes: Mapping[str, str] = dataclasses.field(default_factory=dict)


def check_source(name: str) -> None:
    """Raises ConfigError naming the sources there are, unless `name` is one of them."""
    if name not in SOURCES:
        known = ", ".join(sorted([*SOURCES, *SERVERS]))
        raise ConfigError("source", f"there is no {name!r}; there are {known}")


def table_of(name: str) -> Table:
    """The table that rows of the source go to."""
    return FILES if name in CATALOGUES else JOB_RECORDS if name in OF_JOBS else ACCESSES


def needs_spark(name: str) -> bool:
    """Whether Spark alone reads the source."""
    return name in _OF_SPARK


def reads_whole(name: str) -> bool:
    """Whether all at a path is one input."""
    return name in _WHOLE


def decoder(name: str) -> Decode | None:
    """How the source is decoded; None if its records are lines."""
    return cast("Decode", module(name).decode) if name in _DECODED else None


def query_of_lines(name: str, site: Site, first_line: Callable[[], str], path: str) -> Query:
    """The definition of a source of lines; `first_line` of those at `path` is asked where it may be a header.

    Raises SchemaError if the header lacks columns.
    """
    source = module(name)
    define = getattr(source, name if name in _OF_CMS else "query")
    header = (source.header(first_line(), path),) if name in _HEADED else ()
    return cast("Query", define(site, *header)).reading(site)


def module(name: str) -> ModuleType:
    """The module of a source."""
    return importlib.import_module(f"jobs.ingest.sources.{'cms' if name in _OF_CMS else name}")
