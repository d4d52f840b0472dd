"""The DIDs of paths: of what a cache holds, and of reads whose path alone does not tell the scope.

Where it does not, the catalogue does, which may be pulled before or after: the tables are the same then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.schema import ACCESSES, CONTENTS, FILES
from jobs.ground.store.keys import Key
from jobs.ground.store.tables import Tables, read_partitions
from jobs.loop.ingest.sources import sql, urls, workspace
from jobs.loop.ingest.sources.file_names import UNKNOWN, scoped
from jobs.loop.ingest.sources.workspace import Workspace
from prefetch.target import Held

_OF_FILE = ["did", "scope", "name", "dataset", "tier", "campaign", "experiment"]


def dids_of(tables: Tables, held: Sequence[Held], scopes: Mapping[str, str]) -> dict[str, str]:
    """The DID of each held file by its path in the cache; `scopes`: see `[names]`. See `name_held`."""
    names = pa.array([file.name for file in held], pa.string())
    sizes = pa.array([file.bytes_on_disk for file in held], pa.int64())
    rows = pa.record_batch({"name": names, "bytes_on_disk": sizes, "fault": pa.nulls(len(held), pa.string())})
    with workspace.opened(CONTENTS) as space:
        space.keep(rows.schema, [rows])
        name_held(space, tables, scopes)
        found = space.found("SELECT name, did FROM held_dids")
    return dict(zip(found["name"].to_pylist(), found["did"].to_pylist(), strict=True))


def plain_names(names: pa.Array) -> pa.Array:
    """`names` of files as the catalogue has them: paths and URLs made plain, a path by hash its DID."""
    plain_path = urls.plain_path('"name"')
    steps = [{"path": f"CASE WHEN {_IS_PATH} THEN {plain_path} END"}, *sql.with_parts("path")]
    text = sql.with_steps("SELECT name, n FROM raw", steps)
    plain = sql.named("path")
    told = f"CASE WHEN starts_with({plain['name']}, '/') THEN {plain['name']} ELSE {plain['did']} END"
    with workspace.opened(CONTENTS) as space:
        rows = pa.record_batch({"name": names, "n": pa.array(range(len(names)), pa.int64())})
        space.keep(rows.schema, [rows])
        found = space.found(f'SELECT coalesce({told}, "name") AS plain FROM ({text}) ORDER BY n')["plain"]
    return found.combine_chunks()


_IS_PATH = """starts_with("name", '/') OR contains("name", '://') OR starts_with("name", 'file:')"""


def name_held(space: Workspace, tables: Tables, scopes: Mapping[str, str]) -> None:
    """Make the table held_dids (name, did) of the inventory in `raw`.

    A cache may hold a file under two paths: the one with most bytes is the file, the others are their paths.
    """
    columns = scoped(sql.named("path"), scopes)
    steps = [{"path": urls.plain_path('"name"')}, *sql.with_parts("path")]
    held = sql.with_steps('SELECT "name", bytes_on_disk AS size FROM raw WHERE fault IS NULL', steps)
    named = f'"name", size, {columns["did"]} AS did, {columns["scope"]} AS scope, {columns["name"]} AS plain'
    space.database.execute(f"CREATE TABLE named AS SELECT {named} FROM ({held})")
    strangers = space.found(f"SELECT DISTINCT plain FROM named WHERE scope = '{UNKNOWN}'")["plain"]
    space.database.register("catalogued", _catalogued(tables, strangers).select(["did", "name"]))
    space.database.execute(
        "CREATE TABLE held_dids AS WITH known AS (SELECT named.name, size, scope, "
        "coalesce(catalogued.did, named.did) AS did FROM named LEFT JOIN catalogued "
        f"ON scope = '{UNKNOWN}' AND catalogued.name = plain) "
        "SELECT name, CASE WHEN row_number() OVER (PARTITION BY did ORDER BY size DESC, name) = 1 THEN did "
        "ELSE scope || ':' || name END AS did FROM known"
    )


def settle(tables: Tables, days: Collection[str] | None = None) -> None:
    """Give reads of unknown scope on `days` (None: on all) the file that the catalogue alone knows by name.

    Under the lock of pulls. Only days with such reads are read, and those with an answer rewritten.
    """
    if not (tables.exists(ACCESSES) and tables.exists(FILES)):
        return
    with tables.exclusive("pull"):
        base = tables.head(ACCESSES)
        unknown: dict[Key, pa.Array] = {}
        for key, part in base.partitions.items():
            if days is None or key[0] in days:
                rows = read_partitions(base, {key: part}, ["scope", "name"])
                names = pc.unique(rows.filter(pc.equal(rows["scope"], UNKNOWN))["name"])
                unknown |= {key: names} if len(names) else {}
        strangers = pa.chunked_array(list(unknown.values()), pa.string())
        known = _catalogued(tables, strangers)
        changed = {key for key, names in unknown.items() if pc.any(pc.is_in(names, known["name"])).as_py()}
        pieces = (
            (key, _settled(read_partitions(base, {key: base.partitions[key]}), known)) for key in changed
        )
        if changed:
            tables.replace_each(ACCESSES, pieces, cover=sorted(changed), base=base)


def _settled(rows: pa.Table, known: pa.Table) -> pa.Table:
    rows = rows.select(ACCESSES.column_names)
    at = pc.index_in(rows["name"], value_set=known["name"].combine_chunks())
    is_known = pc.and_(pc.equal(rows["scope"], UNKNOWN), pc.is_valid(at))
    for name in _OF_FILE:
        place, column = rows.schema.get_field_index(name), rows[name]
        found = pc.if_else(is_known, known[name].take(at), column)
        rows = rows.set_column(place, rows.schema.field(name), found)
    return rows


def _catalogued(tables: Tables, names: pa.ChunkedArray) -> pa.Table:
    """What the files table tells of `names`, if it knows one file alone of that name."""
    wanted = pc.unique(names)
    # Names alone take the least memory, and mostly none is known.
    if not len(wanted) or not tables.exists(FILES) or not _is_any(tables, wanted):
        return pa.table({name: pa.array([], pa.string()) for name in _OF_FILE})
    files = tables.read_arrow(FILES, columns=_OF_FILE)
    files = files.filter(pc.is_in(files["name"], value_set=wanted))
    counted = files["name"].combine_chunks().value_counts()
    several = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    return files.filter(pc.invert(pc.is_in(files["name"], value_set=several))).combine_chunks()


def _is_any(tables: Tables, names: pa.Array) -> bool:
    known = tables.read_arrow(FILES, columns=["name"])["name"]
    return bool(pc.any(pc.is_in(known, value_set=names)).as_py())
