"""Step `pull`: raw records into the tables, from files or from a server."""

from __future__ import annotations

import dataclasses

from features.errors import InputError
from jobs.ingest import captures, catalogue, incremental, raw_input
from jobs.ingest.raw_input import PullSummary
from jobs.ingest.rucio import session
from jobs.ingest.scan import day_of
from jobs.settings.sources import SERVERS
from jobs.settings.tree import Settings
from jobs.spark.session import spark_session
from jobs.store.tables import Tables


def run(settings: Settings, *, source: str, path: str, day_s: int, new_only: bool = False) -> PullSummary:
    """Merge raw records into the tables.

    `new_only`: leave out files that an earlier pull with `new_only` read, unless they changed since. Captures
    of the collector that are older than `[collect] keep` at `day_s` are then deleted, as they are in the
    tables. Raises InputError if the source or the input cannot be read.
    """
    if source in SERVERS:
        return _pull_from_server(settings, source=source, path=path, day_s=day_s, new_only=new_only)
    spark, tables = spark_session(settings.spark), Tables(settings.tables.root)
    summary = raw_input.pull(
        spark,
        tables,
        source=source,
        path=path,
        day=day_of(day_s),
        salt=settings.users.salt.get_secret_value(),
        caches=settings.sources.cache_hosts,
        take=incremental.only_new if new_only else raw_input.everything,
    )
    if source != "xcache_gstream" or not new_only:
        return summary
    taken = incremental.taken(spark, tables, source=source, path=path)
    removed = captures.remove(taken, before_s=day_s - settings.collect.keep)
    return dataclasses.replace(summary, **removed._asdict())


def _pull_from_server(
    settings: Settings, *, source: str, path: str, day_s: int, new_only: bool
) -> PullSummary:
    if new_only:
        raise InputError(f"--new-only leaves out files that were read before; {source} is a server: drop it")
    return catalogue.pull(
        spark_session(settings.spark),
        Tables(settings.tables.root),
        session=session(settings.rucio),
        path=path,
        day=day_of(day_s),
        in_use_days=settings.rucio.in_use // 86400,
    )
