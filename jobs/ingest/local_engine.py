"""The engine for inputs and tables of this machine, up to an ordinary size: DuckDB in this process.

Its cost follows the input: of the accesses only the days that the input touches are read and written.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.files import InputFile
from features.schema import ACCESSES, FILES, Table, arrow_schema
from jobs.ingest import merging, sources
from jobs.ingest.raw_input import LATE_DAYS, Changes, Mark, PullSummary, Request, concluded, earlier
from jobs.ingest.sources import lines, workspace
from jobs.ingest.sources.decoded import Decode
from jobs.ingest.sources.local import files_at, files_in, places_at, status_of
from jobs.ingest.sources.workspace import Workspace
from jobs.store.keys import Key
from jobs.store.schema_check import partition_groups
from jobs.store.tables import Partition, Snapshot, Tables, read_partitions


class LocalEngine:
    """DuckDB in this process; see `jobs.ingest.raw_input.Engine`."""

    name = "local"

    def inputs(self, path: str, *, whole: bool) -> list[Mark]:
        return marks(path, whole=whole)

    def merge(self, tables: Tables, request: Request, paths: Sequence[str]) -> PullSummary:
        table = sources.table_of(request.source)
        with tables.exclusive("pull"), workspace.opened(table) as space:
            n_lost = _read(space, tables, request, paths)
            changes = (_merge_accesses if table is ACCESSES else _merge_files)(space, tables)
            return concluded(
                tables,
                request,
                inputs=space.found("SELECT input, count(*) AS n_rows FROM parsed GROUP BY input"),
                rejects=_rejects(space, request.source),
                changes=changes,
                n_lost=n_lost,
            )


def marks(path: str, *, whole: bool) -> list[Mark]:
    """The marks of the files of this machine at `path`; see `raw_input.Engine.inputs`."""
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
        return decoded(decode, space, tables, request, places)
    files = files_in(places)
    first = functools.partial(lines.first_line, files)
    query = sources.query_of_lines(request.source, request.site, first, request.path)
    found = lines.batches(map(lines.Piece, files), lambda file, why: space.refuse(lines.uri_of(file), why))
    space.take(query, map(workspace.lines_of, found))
    space.count_refused()
    return 0


def decoded(
    decode: Decode, space: Workspace, tables: Tables, request: Request, places: Sequence[InputFile]
) -> int:
    """Add the rows at `places` to `space` as `decode` does, and what was refused."""
    n_lost = decode(
        space, places, site=request.site, earlier=functools.partial(earlier, tables, request.source)
    )
    space.count_refused()
    return n_lost


def _rejects(space: Workspace, source: str) -> pa.Table:
    found = space.found(
        "SELECT input, reason, count(*) AS n_rows, min(sample) AS sample FROM parsed "
        "WHERE reason IS NOT NULL GROUP BY input, reason"
    )
    return found.append_column("source", pa.repeat(pa.scalar(source), found.num_rows))


def _merge_accesses(space: Workspace, tables: Tables) -> Changes:
    found = space.found(f"SELECT DISTINCT {merging.DAY} AS day FROM parsed WHERE reason IS NULL")
    days = set(found["day"].to_pylist())
    base = tables.head(ACCESSES)
    touched = {key: part for key, part in base.partitions.items() if key[0] in days}
    space.put("old", ACCESSES.partition, _partitions(base, touched))
    merging.merge_accesses(space, into="merged", old="old")
    is_late = f"known_at > coalesce(closed_at, accessed_at) + INTERVAL {LATE_DAYS} DAY"
    counted = space.found(
        f"SELECT day, count(*) AS n, count_if({is_late}) AS n_late FROM merged "
        "WHERE changed GROUP BY day ORDER BY day"
    )
    changed = tuple(counted["day"].to_pylist())
    if changed or not base.number:
        _replace(space, tables, ACCESSES, base, "WHERE day IN (SELECT day FROM merged WHERE changed)")
    n_new, n_late = (int(pc.sum(counted[name]).as_py() or 0) for name in ("n", "n_late"))
    return Changes(n_new, n_late, changed)


def _merge_files(space: Workspace, tables: Tables) -> Changes:
    base = tables.head(FILES)
    space.put("old", (), _partitions(base, base.partitions))
    merging.merge_files(space, into="merged", old="old")
    n_changed = space.found("SELECT count(*) AS n FROM merged WHERE changed")["n"][0].as_py()
    if n_changed or not base.number:
        _replace(space, tables, FILES, base, "")
    return Changes(n_changed)


def _partitions(snapshot: Snapshot, chosen: Mapping[Key, Partition]) -> Iterator[pa.Table]:
    return (read_partitions(snapshot, {key: part}) for key, part in chosen.items())


def _replace(space: Workspace, tables: Tables, table: Table, base: Snapshot, where: str) -> None:
    """Replace the partitions of the merged rows, a partition at a time, in order of their keys."""
    schema = arrow_schema(table)
    for name in table.partition:
        schema = schema.append(pa.field(name, pa.string()))
    columns = ", ".join(f'"{name}"' for name in schema.names)
    order = ", ".join(f'"{name}"' for name in dict.fromkeys([*table.partition, "did", *table.key]))
    batches = space.batches(f"SELECT {columns} FROM merged {where} ORDER BY {order}")
    rows = (pa.Table.from_batches([batch]).cast(schema) for batch in batches)
    tables.replace_each(table, _by_partition(table, rows), base=base)


def _by_partition(table: Table, rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """`rows`, which are in order of their partitions, as one table a partition."""
    some: list[pa.Table] = []
    now: Key = ()
    for key, piece in itertools.chain.from_iterable(partition_groups(table, one) for one in rows):
        if some and key != now:
            yield pa.concat_tables(some)
            some = []
        some.append(piece)
        now = key
    if some:
        yield pa.concat_tables(some)
