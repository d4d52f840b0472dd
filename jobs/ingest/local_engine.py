"""The engine for inputs and tables of this machine, up to an ordinary size: DuckDB in this process.

Its cost follows the input: of the accesses only the days that the input touches are read and written.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Sequence

import pyarrow as pa

from features.schema import ACCESSES
from jobs.ingest import merging, sources
from jobs.ingest.pull_input import Changes, Mark, PullSummary, Request, earlier, summarise
from jobs.ingest.sources import fetched, lines, workspace
from jobs.ingest.sources.local import files_at, files_in, places_at, status_of
from jobs.ingest.sources.workspace import Workspace
from jobs.store.commits import Snapshot
from jobs.store.tables import Tables, read_partitions


class LocalEngine:
    """DuckDB in this process; see `jobs.ingest.pull_input.Engine`."""

    name = "local"

    def inputs(self, path: str, *, whole: bool) -> list[Mark]:
        return marks(path, whole=whole)

    def merge(self, tables: Tables, request: Request, paths: Sequence[str]) -> PullSummary:
        with tables.exclusive("pull"), workspace.opened(sources.table_of(request.source)) as space:
            n_lost = _read(space, tables, request, paths)
            return merge(space, tables, request, n_lost=n_lost)


def merge(space: Workspace, tables: Tables, request: Request, *, n_lost: int = 0) -> PullSummary:
    """Merge the parsed rows of `space`, under the lock of pulls; see `pull_input.Engine.merge`."""
    return summarise(
        tables,
        request,
        inputs=space.found("SELECT input, count(*) AS n_rows FROM parsed GROUP BY input"),
        rejects=_rejects(space, request.source),
        changes=_merged(space, tables),
        n_lost=n_lost,
    )


def marks(path: str, *, whole: bool) -> list[Mark]:
    """The marks of the files of this machine at `path`; see `pull_input.Engine.inputs`."""
    found = [(file.path.absolute(), status_of(file)) for file in files_at(path, whole=whole)]
    return [
        Mark(f"file:{file}", status.st_size, _in_milliseconds(status.st_mtime_ns)) for file, status in found
    ]


def _in_milliseconds(nanoseconds: int) -> dt.datetime:
    """As precise as Spark's marks."""
    whole = nanoseconds // 1_000_000
    return dt.datetime.fromtimestamp(whole // 1000, dt.UTC) + dt.timedelta(milliseconds=whole % 1000)


def _read(space: Workspace, tables: Tables, request: Request, paths: Sequence[str]) -> int:
    places = [place for path in paths for place in places_at(path, request.path)]
    if decode := sources.decoder(request.source):
        n_lost = decode(
            space, places, site=request.site, earlier=functools.partial(earlier, tables, request.source)
        )
        space.count_refused()
        return n_lost
    files = files_in(places)
    first = functools.partial(lines.first_line, files)
    query = sources.query_of_lines(request.source, request.site, first, request.path)
    found = lines.batches(map(lines.Piece, files), lambda file, why: space.refuse(lines.uri_of(file), why))
    space.take(query, found)
    space.count_refused()
    return 0


def _rejects(space: Workspace, source: str) -> pa.Table:
    found = space.found(
        "SELECT input, reason, count(*) AS n_rows, min(sample) AS sample FROM parsed "
        "WHERE reason IS NOT NULL GROUP BY input, reason"
    )
    return found.append_column("source", pa.repeat(pa.scalar(source), found.num_rows))


def _rows(base: Snapshot, day: str, columns: Sequence[str] | None) -> pa.Table:
    return read_partitions(base, {(day,): base.partitions[(day,)]}, columns)


def _merged(space: Workspace, tables: Tables) -> Changes:
    table, base, touched = space.table, tables.head(space.table), None
    if table.dated_by:
        found = space.found(
            f"SELECT DISTINCT {merging.day_of(table)} AS day FROM parsed WHERE reason IS NULL"
        )
        touched = set(found["day"].to_pylist())
    chosen = {key: part for key, part in base.partitions.items() if touched is None or key[0] in touched}
    space.put("old", table.partition, (read_partitions(base, {key: part}) for key, part in chosen.items()))
    merging.merge(space)
    changes = Changes.of(merging.changes(space))
    if table == ACCESSES:
        others = [day for (day,) in base.partitions if (day,) not in chosen]
        rows_of = functools.partial(_rows, base)
        changes = changes.with_days(fetched.settle(space, others, rows_of))
    if changes.n_new or changes.days or not base.number:
        where = "WHERE day IN (SELECT day FROM merged WHERE changed)" if table.dated_by else ""
        tables.replace_each(table, merging.merged_rows(space, where), base=base)
    return changes
