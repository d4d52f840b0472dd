"""Step `pull`: raw records into the tables, from files or from a server."""

from __future__ import annotations

import dataclasses
import datetime as dt

from features.common.errors import InputError
from features.common.times import day_label
from features.schema import ACCESSES, FILES, REJECTS
from jobs.ingest import captures, engines, incremental, pull_input, sources
from jobs.ingest.pull_input import PullSummary, Request
from jobs.ingest.sources.local import is_local, places_at
from jobs.ingest.sources.site import Site
from jobs.settings.sources import IN_USE, SERVERS, WITHOUT_SIZES
from jobs.settings.tree import Settings
from jobs.store.sizes import n_unknown
from jobs.store.tables import Tables


def run(settings: Settings, *, source: str, path: str, day_s: int, new_only: bool = False) -> PullSummary:
    """Merge raw records into the tables.

    `new_only`: leave out files that an earlier pull with `new_only` read, unless they changed since. Captures
    of the collector that are older than `[collect] keep` at `day_s` are then deleted, as they are in the
    tables. What can be checked is checked before an engine starts. Raises InputError if the source or the
    input cannot be read, ConfigError for an unknown source or unusable tables.
    """
    tables, day = Tables(settings.tables.root), dt.date.fromisoformat(day_label(day_s))
    tables.check_writable(ACCESSES, FILES, REJECTS)
    if source in SERVERS:
        return _pull_from_server(settings, tables, path=path, day=day, new_only=new_only, source=source)
    sources.check_source(source)
    engine = engines.chosen(
        tables, source=source, path=path, up_to_bytes=settings.sources.local_up_to, spark=settings.spark
    )
    summary = pull_input.pull(
        engine,
        tables,
        source=source,
        path=path,
        day=day,
        salt=settings.users.salt.get_secret_value(),
        caches=settings.sources.cache_hosts,
        storages=settings.sources.storages,
        test_files=settings.plan.test_files,
        take=incremental.only_new if new_only else None,
    )
    if source in WITHOUT_SIZES:
        return dataclasses.replace(summary, n_unsized=n_unknown(tables, source, summary.days))
    if source != "xcache_gstream" or not new_only:
        return summary
    taken = incremental.taken(engine, tables, Request(source, path, Site()))
    removed = captures.remove(taken, before_s=day_s - settings.collect.keep)
    return dataclasses.replace(summary, **removed._asdict())


def _pull_from_server(
    settings: Settings, tables: Tables, *, source: str, path: str, day: dt.date, new_only: bool
) -> PullSummary:
    from jobs.ingest import catalogue  # noqa: PLC0415  Rucio is loaded where it is used
    from jobs.ingest.rucio import session  # noqa: PLC0415

    if new_only:
        raise InputError(f"--new-only leaves out files that were read before; {source} is a server: drop it")
    if path != IN_USE and is_local(path):
        places_at(path)
    summary = catalogue.pull(
        tables,
        session=session(settings.rucio),
        path=path,
        day=day,
        in_use_days=settings.rucio.in_use // 86400,
    )
    return dataclasses.replace(summary, engine="local")
