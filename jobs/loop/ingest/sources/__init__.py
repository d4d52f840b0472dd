"""The sources, by name, and what of a site they depend on. A source is loaded when it is used.

They are the entry points `cachecast.sources` of this and of other packages, each a `Source`.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from features.common.errors import CachecastError, ConfigError
from features.common.names import literal
from features.common.plugins import blamed
from features.schema import ACCESSES, Table
from jobs.ground.settings.our_sources import GROUP, OURS
from jobs.ground.settings.sources import SOURCES, is_source, known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.loop.ingest.sources.sql import Query
    from jobs.loop.ingest.sources.workspace import Decode

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Site:
    """The site's settings that sources depend on.

    `salt` hashes users (empty: no users). `day` (`2026-03-01`) dates records that do not state when they were
    made. `caches`: hosts and domains of caches, to distinguish a cache's own reads from those of jobs.
    `storages`, `job_sites`: patterns of the storages, and of the sites of jobs, that count where a source
    names one (none: all count). `test_files`: patterns of names that only monitoring reads. `senders`: the
    cache that a host, or host:port, reports as. `scopes`: Rucio's scopes by beginnings of paths, of files
    whose paths do not tell them.
    """

    salt: str = ""
    day: str = ""
    caches: Sequence[str] = ()
    storages: Sequence[str] = ()
    job_sites: Sequence[str] = ()
    test_files: Sequence[str] = ()
    senders: Mapping[str, str] = dataclasses.field(default_factory=dict)
    scopes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def cache_of(self, host: str, port: str = "") -> str | None:
        """The cache that reports as a server at `host`; None if the settings name none."""
        host = host.lower()
        return self.senders.get(f"{host}:{port}") or self.senders.get(host)


@dataclasses.dataclass(frozen=True)
class Source:
    """One raw format: how its records become rows of `table`, whichever engine runs it.

    One of three says how it is read. `query(site)` is the definition of lines, or `query(site, header)` where
    a first line names the columns, of which `header(line, path)` makes the header (SchemaError if some are
    missing). `decode(…)` is for files that only make sense one after the other, see `workspace.Decode`.
    `read(spark, path, day=…)` is for files that Spark alone reads: a frame, and the definition of its rows.

    `is_whole`: the files mean nothing alone; all at a path is one input. `has_sizes`: records state the sizes
    of files. `of_paths`: records name files by their paths alone. `of_caches`: they are those of the caches
    themselves, with the bytes served from disk.
    `of_sessions`: a user is a session of a server. `in_two_parts`: what is decoded reports an access
    at its open, and its end and bytes later. `is_local`: only folders of this machine are read.
    """

    query: Callable[..., Query] | None = None
    header: Callable[[str, str], object] | None = None
    decode: Decode | None = None
    read: Callable[..., tuple[DataFrame, Query]] | None = None
    table: Table = ACCESSES
    is_whole: bool = False
    has_sizes: bool = True
    of_paths: bool = False
    of_caches: bool = False
    of_sessions: bool = False
    in_two_parts: bool = False
    is_local: bool = False
    name: str = ""
    entry: EntryPoint | None = None  # where another package brings the source; None for ours

    def lines(self, site: Site, first_line: Callable[[], str], path: str) -> Query:
        """The definition of lines; `first_line` of those at `path` is asked where it may be a header."""
        if self.query is None:
            raise ConfigError("source", f"{self.name!r} is read by Spark alone; pull it with Spark's engine")
        header = () if self.header is None else (self.header(first_line(), path),)
        return self.of(self.query(site, *header), site)

    def of(self, query: Query, site: Site) -> Query:
        """A definition of the source with its name, and without reads of the test files of `site`."""
        return dataclasses.replace(
            query.reading(site), columns={**query.columns, "source": literal(self.name)}
        )

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Raise ConfigError that names the package where code of another package fails in the block.

        What that prints is no answer of a command: it goes to stderr.
        """
        if self.entry is None:
            yield
            return
        with blamed(partial(SOURCES.fault, self.entry), "failed", (CachecastError, *SOURCES.through)):
            yield


@functools.cache
def load_source(name: str) -> Source:
    """The source of files called `name`; of two of one name ours.

    Raises ConfigError if there is none, or if a package brings it that cannot be used.
    """
    entries = SOURCES.of_others(name)
    if name in OURS:
        for entry in entries:
            _log.warning("%s", SOURCES.fault(entry, "is left out, as cachecast has one of that name"))
        ours: Source = EntryPoint(name, OURS[name], GROUP).load()
        return dataclasses.replace(ours, name=name)
    if not entries:
        raise ConfigError("source", f"there is no source of files {name!r}; {known()}")
    source, fault = SOURCES.load(entries), partial(SOURCES.fault, entries[0])
    if not isinstance(source, Source):
        raise fault(f"is no Source but of type {type(source).__name__}")
    if (n_ways := sum(way is not None for way in (source.query, source.decode, source.read))) != 1:
        raise fault(f"has {n_ways} of query, decode and read, and needs one")
    if not isinstance(source.table, Table):
        raise fault(f"has no Table as its table but a {type(source.table).__name__}")
    return dataclasses.replace(source, name=name, entry=entries[0])


def select_sources(names: Iterable[str], matches: Callable[[Source], bool]) -> list[str]:
    """Those of `names` that are such sources; of a name that is none here nothing is known."""
    return [name for name in names if is_source(name) and matches(load_source(name))]
