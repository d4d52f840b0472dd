"""Step `pull`: raw records into the tables, from files or from a server."""

import dataclasses
import datetime as dt
from collections.abc import Iterable, Sequence

from features.common.errors import InputError
from features.common.input_files import InputFile
from features.common.times import day_label
from features.schema import ACCESSES, FILES, JOB_RECORDS, REJECTS
from jobs.ground.settings.sources import IN_USE, SERVER
from jobs.ground.settings.tree import Settings, SparkSettings
from jobs.ground.spark import has_spark
from jobs.ground.store.sizes import n_unknown
from jobs.ground.store.tables import Tables
from jobs.ground.text import count
from jobs.loop.ingest import pull_input, sources
from jobs.loop.ingest.local_engine import LocalEngine, forget_unpaired
from jobs.loop.ingest.pull_input import Engine, Mark, PullSummary, Request
from jobs.loop.ingest.sources import Site, Source, local

_COLLECTED = {
    "xcache_gstream": "gstream-*.capture",
    "xrootd_fstream": "bus/fstream/fstream-*.jsonl",
    "cms_aaa": "bus/closes/closes-*.jsonl",
}
"""What the collector writes, by the source that reads it."""


def run(settings: Settings, *, source: str, path: str, day_s: int, new_only: bool = False) -> PullSummary:
    """Merge raw records into the tables.

    `new_only`: leave out files that an earlier pull with `new_only` read, unless they changed since. Captures
    of the collector that are older than `[collect] keep` at `day_s` are then deleted, as they are in the
    tables, and halves of accesses whose other half never came. What can be checked is checked before an
    engine starts. Raises InputError if the source or the input cannot be read, ConfigError for an unknown
    source or unusable tables.
    """
    local.check_no_login(path)
    tables, day = Tables.of(settings), dt.date.fromisoformat(day_label(day_s))
    tables.check_writable(ACCESSES, FILES, JOB_RECORDS, REJECTS)
    if source == SERVER:
        return _pull_from_server(settings, tables, path=path, day=day, new_only=new_only, source=source)
    definition = sources.load_source(source)
    local.check_answers(path)
    engine = engine_for(
        tables, source=source, path=path, up_to_bytes=settings.sources.local_up_to, spark=settings.spark
    )
    n_unfinished = _n_unfinished(path, definition)  # what was pulled may be moved away at once
    summary = pull_input.pull(
        engine,
        tables,
        source=source,
        path=path,
        day=day,
        salt=settings.users.salt.get_secret_value(),
        caches=settings.sources.cache_hosts,
        storages=settings.sources.storages,
        job_sites=settings.sources.job_sites,
        test_files=settings.plan.test_files,
        senders=settings.senders,
        scopes=settings.names.scopes,
        new_only=new_only,
    )
    alarms = [_no_row(path, n_unfinished)] if n_unfinished and not summary.n_rows else []
    summary = dataclasses.replace(summary, n_unfinished=n_unfinished, alarms=(*summary.alarms, *alarms))
    before_s = day_s - settings.collect.keep
    if new_only:
        forget_unpaired(tables, before_s=before_s)
    if not definition.has_sizes:
        return dataclasses.replace(summary, n_unsized=n_unknown(tables, source, summary.days))
    if source not in _COLLECTED or not new_only or not local.is_local(path):
        return summary
    try:
        taken = pull_input.taken(engine, tables, Request(source, path, Site()))
    except InputError:  # there are none any more
        return summary
    n_removed, n_left = remove_captures(taken, before_s=before_s)
    return dataclasses.replace(summary, n_removed=n_removed, n_not_removed=n_left)


def _pull_from_server(
    settings: Settings, tables: Tables, *, source: str, path: str, day: dt.date, new_only: bool
) -> PullSummary:
    from jobs.loop.ingest import catalogue  # noqa: PLC0415  Rucio is loaded where it is used

    if new_only:
        raise InputError(f"--new-only leaves out files that were read before; {source} is a server: drop it")
    if path != IN_USE and local.is_local(path):
        local.places_at(path)
    summary = catalogue.pull(
        tables,
        session=catalogue.session(settings.rucio),
        path=path,
        day=day,
        in_use_days=settings.rucio.in_use // 86400,
        scopes=settings.names.scopes,
    )
    return dataclasses.replace(summary, engine="local")


def engine_for(tables: Tables, *, source: str, path: str, up_to_bytes: int, spark: SparkSettings) -> Engine:
    """DuckDB in this process for an input at `path` that is local and of ordinary size, else Spark, started.

    Local, if input and tables are on this machine, what must be read is at most `up_to_bytes` (packed files
    count tenfold), and the source does not need Spark; and if there is no Spark here, as on a cache's host.
    Raises InputError if nothing is at a local `path`.
    """
    definition = sources.load_source(source)
    if definition.decode is not None:
        if definition.is_local:
            local.local_path(path)
        return LocalEngine()  # their files only make sense one after the other
    files = local.files_at(path, whole=definition.is_whole) if local.is_local(path) else None
    may_be_local = files is not None and definition.read is None
    if _fits(tables, definition, files, up_to_bytes) or (may_be_local and not has_spark()):
        return LocalEngine()
    from jobs.ground.spark.session import spark_session  # noqa: PLC0415
    from jobs.loop.ingest.spark_engine import SparkEngine  # noqa: PLC0415  Spark is loaded where it is used

    return SparkEngine(spark_session(spark))


def _fits(tables: Tables, source: Source, files: Sequence[InputFile] | None, up_to_bytes: int) -> bool:
    if files is None or source.read is not None or not local.is_local(tables.root):
        return False
    if source.table is FILES:  # which is merged as a whole
        files = [*files, *map(InputFile, tables.local_files(FILES))]
    sizes = (local.unpacked_bytes(str(file.path), local.status_of(file).st_size) for file in files)
    return sum(sizes) <= up_to_bytes


def _n_unfinished(path: str, source: Source) -> int:
    """Number of the files at `path` that are still being written; 0 on another file system."""
    files = local.files_in(local.places_at(path), whole=source.is_whole) if local.is_local(path) else ()
    return sum(file.path.name.endswith(local.BEING_WRITTEN) for file in files)


def _no_row(path: str, n_files: int) -> str:
    return (
        f"no row: {count(n_files)} file{'s' * (n_files > 1)} at {path} end in {local.BEING_WRITTEN}, still "
        "being written; the collector finishes one at --roll-size or --roll-every after its first datagram"
    )


def remove_captures(taken: Iterable[Mark], *, before_s: int) -> tuple[int, int]:
    """Delete the collector's captures among `taken` that last changed before `before_s` (since 1970).

    Returns the numbers of those deleted, and of those that this account may not delete.
    """
    n_removed = n_not_removed = 0
    for mark in taken:
        path = local.local_path(mark.input)
        if not any(map(path.match, _COLLECTED.values())) or mark.modified_at.timestamp() >= before_s:
            continue
        try:
            path.unlink(missing_ok=True)
            n_removed += 1
        except OSError:
            n_not_removed += 1
    return n_removed, n_not_removed
