"""The DIDs of paths: of the files a cache holds, and of reads whose path alone does not show the scope.

The catalogue then has the scope. Whether it is pulled before or after the reads, the tables are the same.
"""

import operator
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import ConfigError
from features.common.names import CMS_LFN, literal
from features.schema import ACCESSES, CONTENTS, FILES, Table, arrow_schema
from jobs.ground.store.commits import Key
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import sources
from jobs.loop.ingest.sources import sql, urls, workspace
from jobs.loop.ingest.sources.urls import EXPERIMENTS, UNKNOWN, scoped
from jobs.loop.ingest.sources.workspace import Workspace
from prefetch.target import Held

_PATH = "^/|://|^file:"
_IS_PATH = f"""regexp_matches("name", {literal(_PATH)})"""
_OF_FILE = ["did", "scope", "name", "dataset", "tier", "campaign", "experiment"]
_LOOKED_AT = ["did", "scope", "name", "source"]
_ORDER = [("did", "ascending"), ("event_id", "ascending")]


def dids_of(
    tables: Tables, held: Sequence[Held], scopes: Mapping[str, str], prefix: str | None = None
) -> dict[str, str]:
    """The DID of each held file by its path in the cache; `scopes`: see `[names]`. See `name_held`."""
    names = pa.array([file.name for file in held], pa.string())
    sizes = pa.array([file.bytes_on_disk for file in held], pa.int64())
    rows = pa.record_batch({"name": names, "bytes_on_disk": sizes, "fault": pa.nulls(len(held), pa.string())})
    with workspace.opened(CONTENTS) as space:
        space.keep(rows.schema, [rows])
        name_held(space, tables, scopes, prefix)
        named = space.select("SELECT name, did FROM held_dids")
    return dict(zip(named["name"].to_pylist(), named["did"].to_pylist(), strict=True))


def plain_names(names: pa.Array) -> pa.Array:
    """`names` of files as the catalogue has them: paths and URLs made plain, a path by hash its DID."""
    if not pc.any(pc.match_substring_regex(names, _PATH)).as_py():
        return names  # as of most queues: to open a database takes longer than all else
    plain_path = urls.plain_path('"name"')
    steps = [{"path": f"CASE WHEN {_IS_PATH} THEN {plain_path} END"}, *sql.with_parts("path")]
    text = sql.with_steps("SELECT name, n FROM raw", steps)
    columns = sql.named("path")
    name, did = columns["name"], columns["did"]
    plain = f"CASE WHEN starts_with({name}, '/') THEN {name} ELSE {did} END"
    with workspace.opened(CONTENTS) as space:
        rows = pa.record_batch({"name": names, "n": pa.array(range(len(names)), pa.int64())})
        space.keep(rows.schema, [rows])
        answer = space.select(f'SELECT coalesce({plain}, "name") AS plain FROM ({text}) ORDER BY n')
    return answer["plain"].combine_chunks()


def name_held(space: Workspace, tables: Tables, scopes: Mapping[str, str], prefix: str | None = None) -> None:
    """Make the table held_dids (name, did) of the inventory in `raw`.

    A cache may hold a file under two paths, and anybody may make one: the file is the one below the cache's
    `prefix`, else one without a server or CGI, else the one with most bytes. The others are their paths.
    """
    columns = scoped(sql.named("path"), scopes)
    steps = [{"path": urls.plain_path('"name"')}, *sql.with_parts("path")]
    held = sql.with_steps('SELECT "name", bytes_on_disk AS size FROM raw WHERE fault IS NULL', steps)
    below = "false" if prefix is None else f"starts_with(path, {literal(f'{prefix}/')})"
    # Of one file, the shortest path below the prefix is the one right below it.
    rank = f"""path = "name" AS is_plain, CASE WHEN {below} AND is_plain THEN strlen(path) END AS below"""
    identity = f"{columns['did']} AS did, {columns['scope']} AS scope, {columns['name']} AS plain"
    named = f'"name", size, {rank}, {identity}'
    space.database.execute(f"CREATE TABLE named AS SELECT {named} FROM ({held})")
    strangers = space.select(f"SELECT DISTINCT plain FROM named WHERE scope = '{UNKNOWN}'")["plain"]
    files = _unambiguous(_catalogued(tables, strangers, strangers[:0]))
    space.database.register("catalogued", files.select(["did", "name"]))
    space.database.execute(
        "CREATE TABLE held_dids AS WITH known AS (SELECT named.*, "
        "coalesce(catalogued.did, named.did) AS known FROM named LEFT JOIN catalogued "
        f"ON scope = '{UNKNOWN}' AND catalogued.name = plain) "
        "SELECT name, CASE WHEN row_number() OVER (PARTITION BY known "
        "ORDER BY below NULLS LAST, is_plain DESC, size DESC, name) = 1 THEN known "
        "ELSE scope || ':' || name END AS did FROM known"
    )


def settle(
    tables: Tables, table: Table, scopes: Mapping[str, str], days: Collection[str | None] | None
) -> None:
    """Give reads the names and datasets that `scopes` and the catalogue tell now, after a merge into `table`.

    Of accesses those on `days`; after files all. Only reads known by a path get a scope, if one file has the
    name; a dataset is the catalogue's if it knew the file when the read was published. Under the lock of
    pulls.
    """
    base = tables.head(ACCESSES)
    keys = [
        key for key in base.partitions if table == FILES or (table == ACCESSES and key[0] in (days or ()))
    ]
    has_files = tables.exists(FILES)
    of_days = [_candidates(base.rows_of([key], _LOOKED_AT), scopes, has_files=has_files) for key in keys]
    if not any(len(names) for day in of_days for names in day):
        return
    paths, dids = (pc.unique(pa.chunked_array(column, pa.string())) for column in zip(*of_days, strict=True))
    of_paths = _parts_of(paths, scopes)
    strangers = of_paths.filter(pc.equal(of_paths["scope"], UNKNOWN))["name"]
    files = _catalogued(tables, strangers, pa.chunked_array([dids, *of_paths["did"].chunks]))
    of_paths = _completed(of_paths, _unambiguous(files))
    if not (of_paths.num_rows or files.num_rows):
        return

    def settled(key: Key, columns: Sequence[str]) -> tuple[pa.Table, pa.Table]:
        rows = base.rows_of([key], columns)
        return rows, _settled(rows, of_paths, files, scopes)

    compared = [*_OF_FILE, "known_at", "source"]
    changed = [key for key in keys if operator.ne(*settled(key, compared))]
    pieces = ((key, settled(key, ACCESSES.column_names)[1].sort_by(_ORDER)) for key in changed)
    if changed:
        tables.replace_each(ACCESSES, pieces, cover=changed, base=base)


def _candidates(rows: pa.Table, scopes: Mapping[str, str], *, has_files: bool) -> tuple[pa.Array, pa.Array]:
    """Paths that may get another scope, and DIDs of files whose dataset the catalogue may have."""
    listed = rows.filter(_is_listed(rows)) if has_files else rows[:0]
    return pc.unique(rows["name"].filter(_is_path(rows, scopes))), pc.unique(listed["did"])


def _is_path(rows: pa.Table, scopes: Mapping[str, str]) -> pa.ChunkedArray:
    """Which rows have a path for a name, and a scope that does not follow from the path alone."""
    certain = ["cms", *(() if scopes else EXPERIMENTS)]
    is_certain = pc.is_in(rows["scope"], value_set=pa.array(certain))
    return pc.and_not(pc.and_(_is_of_path(rows), pc.starts_with(rows["name"], "/")), is_certain)


def _is_listed(rows: pa.Table) -> pa.ChunkedArray:
    """Of which rows the catalogue may tell the dataset: the name of a file of CMS does."""
    return pc.and_not(_is_of_path(rows), pc.match_substring_regex(rows["name"], CMS_LFN))


def _is_of_path(rows: pa.Table) -> pa.ChunkedArray:
    of_paths = pa.array(filter(_knows_paths, rows["source"].unique().to_pylist()), pa.string())
    return pc.or_(pc.is_in(rows["source"], value_set=of_paths), pc.equal(rows["scope"], UNKNOWN))


def _knows_paths(source: str) -> bool:
    try:
        return bool(sources.select_sources([source], lambda source: source.of_paths))
    except ConfigError:  # a package that cannot be used any more
        return False


def _parts_of(paths: pa.Array, scopes: Mapping[str, str]) -> pa.Table:
    """What each of `paths` and `scopes` tell of a file."""
    columns = scoped(sql.named("path"), scopes)
    selected = ", ".join(f'{columns[name]} AS "{name}"' for name in _OF_FILE)
    with workspace.opened(ACCESSES) as space:
        space.keep(pa.schema({"path": pa.string()}), [pa.record_batch({"path": paths})])
        return space.select(
            f"SELECT {selected} FROM ({sql.with_steps('SELECT path FROM raw', sql.with_parts('path'))})"
        )


def _completed(of_paths: pa.Table, files: pa.Table) -> pa.Table:
    """`of_paths`, with what `files` tell of names of unknown scope, but their datasets."""
    at = pc.index_in(of_paths["name"], value_set=files["name"])
    is_known = pc.and_(pc.equal(of_paths["scope"], UNKNOWN), pc.is_valid(at))
    for name in _OF_FILE:
        if name != "dataset":
            of_paths = _with(of_paths, name, pc.if_else(is_known, files[name].take(at), of_paths[name]))
    return of_paths.combine_chunks()


def _settled(rows: pa.Table, of_paths: pa.Table, files: pa.Table, scopes: Mapping[str, str]) -> pa.Table:
    at = pc.index_in(rows["name"], value_set=of_paths["name"])
    is_path, is_listed = pc.and_(_is_path(rows, scopes), pc.is_valid(at)), _is_listed(rows)
    for name in _OF_FILE:
        rows = _with(rows, name, pc.if_else(is_path, of_paths[name].take(at), rows[name]))
    listed = pc.index_in(rows["did"], value_set=files["did"])
    was_known = pc.less_equal(files["known_at"].take(listed), rows["known_at"])
    dataset = pc.if_else(pc.and_(is_listed, was_known), files["dataset"].take(listed), None)
    return _with(rows, "dataset", pc.coalesce(dataset, rows["dataset"]))


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(name), values)


def _catalogued(tables: Tables, names: pa.ChunkedArray, dids: pa.ChunkedArray) -> pa.Table:
    """What the files table tells of files by name or DID."""
    columns = [*_OF_FILE, "known_at"]
    empty = arrow_schema(FILES).empty_table().select(columns)
    head = tables.head(FILES)
    # DIDs and names alone take the least memory, and mostly none is known.
    if (
        not (len(names) or len(dids))
        or not pc.any(_is_either(head.rows(["did", "name"]), names, dids)).as_py()
    ):
        return empty
    files = head.rows(columns)
    return files.filter(_is_either(files, names, dids)).combine_chunks()


def _is_either(files: pa.Table, names: pa.ChunkedArray, dids: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.or_(pc.is_in(files["name"], value_set=names), pc.is_in(files["did"], value_set=dids))


def _unambiguous(files: pa.Table) -> pa.Table:
    """Those of `files` whose name no other has."""
    counted = pc.value_counts(files["name"])
    repeated = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    return files.filter(pc.invert(pc.is_in(files["name"], value_set=repeated))).combine_chunks()
