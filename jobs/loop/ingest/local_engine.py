"""The engine for inputs and tables of this machine, up to an ordinary size: DuckDB in this process.

Its cost follows the input: of the accesses only the days that the input touches are read and written.
"""

import contextlib
import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from features.common.errors import ConflictError
from features.common.names import literal
from features.common.times import day_label
from features.schema import ACCESSES, UNPAIRED
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import known_names, merging, sources
from jobs.loop.ingest.pull_input import Changes, Mark, PullSummary, Request, changed_at, earlier, summarise
from jobs.loop.ingest.sources import Source, fetched, lines, remote, workspace
from jobs.loop.ingest.sources.local import files_at, finished_in, is_local, places_at, status_of
from jobs.loop.ingest.sources.workspace import Workspace

_DROP_FORMER_NAMES = (
    "DELETE FROM old USING parsed WHERE old.event_id = parsed.event_id AND parsed.reason IS NULL "
    "AND old.source IN ('xcache_gstream', 'xrootd_fstream') AND old.cache <> parsed.cache "
    "AND (old.closed_at IS NULL OR parsed.closed_at IS NOT NULL)"
)
"""Accesses that were pulled before `hosts` named their cache make way for the same under its new name."""


class LocalEngine:
    """DuckDB in this process; see `jobs.loop.ingest.pull_input.Engine`."""

    name = "local"

    def inputs(self, path: str, *, whole: bool) -> list[Mark]:
        return marks(path, whole=whole) if is_local(path) else remote.marks(path, whole=whole)

    def merge(self, tables: Tables, request: Request, paths: Sequence[str]) -> PullSummary:
        source = sources.load_source(request.source)
        with tables.exclusive(), workspace.opened(source.table) as space:
            n_lost = _read(space, tables, source, request, paths)
            space.count_refused()
            if space.unpaired is not None:
                _keep(tables, space.unpaired)
            return merge(space, tables, request, n_lost=n_lost, in_two_parts=source.in_two_parts)


def merge(
    space: Workspace, tables: Tables, request: Request, *, n_lost: int = 0, in_two_parts: bool = False
) -> PullSummary:
    """Merge the parsed rows of `space`, under the lock of pulls; see `pull_input.Engine.merge`."""
    touched = _touched(space)
    changes = _merged(space, tables, touched, in_two_parts=in_two_parts, renames=bool(request.site.senders))
    known_names.settle(tables, space.table, request.site.scopes, touched)
    return summarise(
        tables,
        request,
        inputs=space.select("SELECT input, count(*) AS n_rows FROM parsed GROUP BY input"),
        rejects=space.select(
            "SELECT input, reason, count(*) AS n_rows, min(sample) AS sample FROM parsed "
            "WHERE reason IS NOT NULL GROUP BY input, reason"
        ),
        changes=changes,
        n_lost=n_lost,
        alarms=space.alarms,
    )


def marks(path: str, *, whole: bool) -> list[Mark]:
    """The marks of the files of this machine at `path`; see `pull_input.Engine.inputs`."""
    files = [(lines.uri_of(file), status_of(file)) for file in files_at(path, whole=whole)]
    return [Mark(uri, status.st_size, changed_at(status.st_mtime_ns // 10**6)) for uri, status in files]


def _read(space: Workspace, tables: Tables, source: Source, request: Request, paths: Sequence[str]) -> int:
    at = functools.partial(places_at, given=request.path) if is_local(request.path) else remote.files_at
    places = [place for path in paths for place in at(path)]
    if source.decode is not None:
        n_lost = source.decode(
            space, places, site=request.site, earlier=functools.partial(earlier, tables, source.name)
        )
        if not isinstance(n_lost, int):
            raise TypeError(f"decode returned {n_lost!r}, not the number of records that are missing")
        return n_lost
    files = finished_in(places)
    first = functools.partial(lines.first_line, files)
    query = source.lines(request.site, first, request.path)
    batches = lines.batches(map(lines.Piece, files), lambda file, why: space.refuse(lines.uri_of(file), why))
    space.take(query, batches)
    return 0


def _touched(space: Workspace) -> set[str] | None:
    """The days of the parsed rows, and of those that are retracted; None of a table without days."""
    if not space.table.dated_by:
        return None
    new = space.select(
        f"SELECT DISTINCT {merging.day_of(space.table)} AS day FROM parsed WHERE reason IS NULL"
    )
    retracted = space.select("SELECT DISTINCT day FROM retracted")["day"].to_pylist()
    return {*new["day"].to_pylist(), *retracted}


def _merged(
    space: Workspace, tables: Tables, touched: set[str] | None, *, in_two_parts: bool, renames: bool
) -> Changes:
    table, base = space.table, tables.head(space.table)
    old = {key: part for key, part in base.partitions.items() if touched is None or key[0] in touched}
    space.put("old", table.partition, (base.rows_of([key]) for key in old))
    reduced = list[str]()
    if table == ACCESSES:
        where = "WHERE event_id IN (SELECT event_id FROM retracted)"
        reduced = space.select(f"SELECT DISTINCT day FROM old {where}")["day"].to_pylist()
        space.database.execute(f"DELETE FROM old {where}")
        if renames:
            space.database.execute(_DROP_FORMER_NAMES)
    merging.merge(space, in_two_parts=in_two_parts)
    changes = Changes.of(merging.changes(space)).with_days(reduced)
    if table == ACCESSES:
        others = [day for (day,) in base.partitions if (day,) not in old]
        settled = fetched.settle(space, others, lambda day, names: base.rows(names, since=day, until=day))
        changes = changes.with_days(settled)
    if changes.n_new or changes.days or not base.number:
        days = ", ".join(map(literal, changes.days)) or "''"
        where = f"WHERE day IN ({days})" if table.dated_by else ""
        cover = [(day,) for day in reduced]
        tables.replace_each(table, merging.merged_rows(space, where), cover=cover, base=base)
    return changes


def forget_unpaired(tables: Tables, *, before_s: int) -> None:
    """Delete the halves of days before that of `before_s` (since 1970), while another pull may be at work."""
    base = tables.head(UNPAIRED)
    if old := [key for key in base.partitions if key[0] < day_label(before_s)]:
        with contextlib.suppress(ConflictError):  # another pull adds to such a day: it goes the next time
            tables.replace_each(UNPAIRED, [], base=base, drop=old)


def _keep(tables: Tables, unpaired: pa.Table) -> None:
    """Add `unpaired`, with their day, to those of the table; one that is there stays as it is."""
    base, days = tables.head(UNPAIRED), set(unpaired["day"].to_pylist())
    old = base.rows_of(key for key in base.partitions if key[0] in days)
    rows = pa.concat_tables([old, unpaired.select(old.column_names).cast(old.schema)])
    numbered = rows.append_column("at", pa.array(np.arange(rows.num_rows)))
    first = numbered.group_by([*UNPAIRED.key, "day"]).aggregate([("at", "min")])
    if first.num_rows > old.num_rows:
        unique = rows.take(first["at_min"]).sort_by([(name, "ascending") for name in UNPAIRED.key])
        tables.replace_arrow(UNPAIRED, unique, base=base)
