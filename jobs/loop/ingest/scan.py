"""Scan a cache's namespace: its inventory into contents, the records in its cinfo files into accesses.

Runs on the cache's host. A second scan changes nothing unless the cache changed.
"""

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from features.common.errors import ConfigError, InputError
from features.common.times import as_of_label, day_label
from features.schema import ACCESSES, CONTENTS, arrow_schema
from jobs.ground.caches.inventory import check_loss
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey, checked_key
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import known_names, local_engine
from jobs.loop.ingest.pull_input import Request
from jobs.loop.ingest.sources import Site, sql, workspace, xcache_cinfo
from jobs.loop.ingest.sources.workspace import Workspace
from prefetch.xcache import cinfo_rows

_FILES_AT_ONCE = 1_000_000  # files of an inventory that are in memory as Arrow, and in a file of the table


@dataclasses.dataclass(frozen=True)
class ScanSummary:
    """One cache's inventory at `as_of`, and the accesses in its cinfo files.

    `open`: files a client holds open; `new_accesses`: rows that changed the accesses table. `n_rejected`:
    files and access records left out, by reason.
    """

    cache: str
    as_of: str
    files: int
    bytes_on_disk: int
    complete: int
    open: int
    new_accesses: int
    known_accesses: int
    n_rejected: Mapping[str, int]
    days: tuple[str, ...]


def run(
    settings: Settings,
    *,
    namespace: Path | None,
    spaces: Sequence[Path],
    cache: str,
    as_of_s: int | None,
    force: bool = False,
) -> ScanSummary:
    """Read a cache's inventory and accesses from its namespace; `as_of_s` defaults to now.

    `namespace` and `spaces` default to those of the cache's settings; `force`: however many bytes are
    missing. Raises ConfigError, and as `scan`.
    """
    known = settings.cache(cache) if namespace is None else settings.caches.get(cache)
    if known is not None:
        namespace, spaces = namespace or known.namespace, spaces or known.spaces
    if namespace is None:
        raise ConfigError(f"caches.{cache}.namespace", "is not set; set it, or give --namespace")
    tables, at_s = Tables.of(settings), int(time.time()) if as_of_s is None else as_of_s
    # Before the walk, what would be raised after it.
    checked_key(CONTENTS, MomentKey.at(at_s, cache))
    tables.check_writable(CONTENTS, ACCESSES)
    try:
        os.scandir(namespace).close()
    except OSError as error:
        raise InputError(
            f"cannot read namespace {namespace}: {error.strerror}; give the folder of the cache's files"
        ) from None
    return scan(
        tables,
        namespace=namespace,
        spaces=spaces,
        cache=cache,
        as_of_s=at_s,
        lost_share=1.0 if force else settings.plan.lost_share,
        test_files=settings.plan.test_files,
        scopes=settings.names.scopes,
        prefix=None if known is None else known.prefix,
    )


def scan(
    tables: Tables,
    *,
    namespace: Path,
    cache: str,
    as_of_s: int,
    spaces: Sequence[Path] = (),
    lost_share: float = 1.0,
    test_files: Sequence[str] = (),
    scopes: Mapping[str, str] = {},
    prefix: str | None = None,
) -> ScanSummary:
    """Replace the contents of `cache` at `as_of_s`, and merge the accesses.

    `spaces`: folders that links of the namespace may lead to; `test_files`, `scopes`: see `Site`; `prefix`:
    that of the cache. Raises SchemaError for a name no cache can have, InputError if there is no folder
    `namespace`, ConflictError if a pull is at work on these tables, LimitError if more than `lost_share` of
    the bytes of the last inventory is gone; nothing is written then.
    """
    key = checked_key(CONTENTS, MomentKey.at(as_of_s, cache))
    # Of all hosts the namespace may be the same folder: rejects are those of a cache.
    input = f"{cache}: {namespace.absolute().as_uri()}"
    site = Site(day=day_label(as_of_s), test_files=test_files, scopes=scopes)
    request = Request("xcache_cinfo", input, site)
    with workspace.opened(ACCESSES) as space:
        space.keep(cinfo_rows.SCHEMA, cinfo_rows.batches(namespace, spaces))
        (held,) = space.select(
            "SELECT count(*) AS files, coalesce(CAST(sum(bytes_on_disk) AS BIGINT), 0) AS bytes_on_disk, "
            "count_if(complete) AS complete, count_if(open) AS open FROM raw WHERE fault IS NULL"
        ).to_pylist()
        check_loss(tables, cache, held_bytes=held["bytes_on_disk"], at_s=as_of_s, share=lost_share)
        base = tables.head(CONTENTS)
        with tables.exclusive():
            space.parse_kept(xcache_cinfo.query(cache, input).reading(site))
            merged = local_engine.merge(space, tables, request)
        known_names.name_held(space, tables, scopes, prefix)
        pieces = ((key, piece) for piece in _inventory(space, as_of_s))
        tables.replace_each(CONTENTS, pieces, cover=[key], base=base)
    return ScanSummary(
        cache=cache,
        as_of=as_of_label(as_of_s),
        **held,
        new_accesses=merged.n_new,
        known_accesses=merged.n_duplicates,
        n_rejected=merged.n_rejected,
        days=merged.days,
    )


def _inventory(space: Workspace, as_of_s: int) -> Iterator[pa.Table]:
    """The inventory, `_FILES_AT_ONCE` files at a time."""
    columns = {
        "last_detach": sql.timestamp(sql.micros("last_detach_s")),
        "scanned_at": sql.timestamp(str(as_of_s * 10**6)),
    }
    selected = ", ".join(f'{columns.get(name, name)} AS "{name}"' for name in CONTENTS.column_names)
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(CONTENTS)])
    rows = space.batches(
        f"SELECT {selected} FROM raw JOIN held_dids USING (name) WHERE fault IS NULL ORDER BY did",
        _FILES_AT_ONCE,
    )
    return (pa.Table.from_batches([batch]).cast(schema) for batch in rows)
