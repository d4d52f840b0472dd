"""Hits and misses as caches recorded them: counted by hour and cache, and by origin, which no hit names."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.hosts import first_fit
from features.common.times import HOUR_S
from features.schema import ACCESSES, FILES
from jobs.ground.store.tables import Tables, read_partitions
from jobs.ground.text import Row
from jobs.loop.ingest import sources
from jobs.loop.ingest.sources import workspace
from replay.study.benefit import Region
from replay.study.use import regions_of

COUNTED = ("hits", "misses", "unknown_reads", "read_bytes", "hit_bytes", "missed_bytes")
_COLUMNS = [
    *("source", "cache", "did", "origin", "accessed_at", "n_reads"),
    *("read_bytes", "bytes_hit", "bytes_missed"),
]
_LOCATED = """CREATE TABLE located AS
SELECT a.* REPLACE (CASE WHEN a.cache IS NULL THEN a.origin
    ELSE coalesce(a.origin, here.origin, there.origin, catalogued.origin) END AS origin)
FROM accesses a
ASOF LEFT JOIN fetches here ON a.did = here.did AND a.cache = here.cache AND a.accessed_at >= here.accessed_at
ASOF LEFT JOIN fetches there ON a.did = there.did AND a.accessed_at >= there.accessed_at
LEFT JOIN catalogued ON a.did = catalogued.did"""


def counts_of_day(tables: Tables, day: str) -> pa.Table:
    """Reads and bytes of one day by hour (since 1970) and cache.

    `unknown_reads`: of which the cache does not say what it fetched; they are in none of the others.
    `missed_bytes` were fetched, read or not.
    """
    return sums_by(recorded_reads(tables, day), "hour", "cache")


def sums_by(counts: pa.Table, *by: str) -> pa.Table:
    """The counts summed by columns."""
    sums = counts.group_by(list(by)).aggregate([(name, "sum") for name in COUNTED])
    return sums.rename_columns({f"{name}_sum": name for name in COUNTED}).select([*by, *COUNTED])


def recorded_reads(tables: Tables, day: str) -> pa.Table:
    """The reads in caches' own records of one day; those of a second source do not count again."""
    head = tables.head(ACCESSES)
    rows = read_partitions(head, head.select(since=day, until=day), _COLUMNS)
    of_caches = sources.select_sources(rows["source"].unique().to_pylist(), lambda source: source.of_caches)
    is_recorded = pc.is_in(rows["source"], pa.array(of_caches, pa.string()))
    rows = rows.filter(pc.and_(pc.is_valid(rows["cache"]), is_recorded))
    streamed = rows.filter(pc.equal(rows["source"], "xcache_gstream"))["cache"].unique()
    is_again = pc.and_(pc.not_equal(rows["source"], "xcache_gstream"), pc.is_in(rows["cache"], streamed))
    rows = rows.filter(pc.invert(is_again))
    # As whole numbers the sums of absurd records would not fit into 64 bits.
    hit, missed, read = (
        rows[name].cast(pa.float64(), safe=False) for name in ("bytes_hit", "bytes_missed", "read_bytes")
    )
    is_known = pc.and_(pc.is_valid(hit), pc.is_valid(missed))
    is_hit = pc.greater(hit, missed)
    read = pc.coalesce(read, pc.add(hit, missed))
    counts = {
        "hits": pc.if_else(is_hit, rows["n_reads"], 0),
        "misses": pc.if_else(is_hit, 0, rows["n_reads"]),
        "read_bytes": read,
        "hit_bytes": hit,
        "missed_bytes": missed,
    }
    table = pa.table(
        {
            "hour": pc.divide(rows["accessed_at"].cast(pa.int64()), HOUR_S * 1_000_000),
            **{name: rows[name] for name in ("cache", "did", "origin", "accessed_at")},
            **{name: pc.if_else(is_known, column, 0) for name, column in counts.items()},
            "unknown_reads": pc.if_else(is_known, 0, rows["n_reads"]),
        }
    )
    return table.filter(pc.or_kleene(pc.invert(is_known), pc.greater(pc.add(read, missed), 0)))


def give_origins(database: duckdb.DuckDBPyConnection, tables: Tables, regions: Sequence[Region]) -> None:
    """Make of the table `accesses` (did, cache, accessed_at, origin …) the table `located`.

    A read at a cache that has no origin gets that of the file's last fetch by the same cache, else by any;
    else the nearest of `regions` that the catalogue has it in.
    """
    database.execute(
        "CREATE TABLE fetches AS SELECT did, cache, accessed_at, origin FROM accesses "
        "WHERE origin IS NOT NULL AND cache IS NOT NULL"
    )
    lacking = database.sql(
        "SELECT DISTINCT did FROM accesses ANTI JOIN fetches USING (did) "
        "WHERE origin IS NULL AND cache IS NOT NULL"
    )
    database.register("catalogued", _catalogued(tables, lacking.to_arrow_table()["did"], regions))
    database.execute(_LOCATED)


def _catalogued(tables: Tables, dids: pa.ChunkedArray, regions: Sequence[Region]) -> pa.Table:
    """The origin of each of `dids` that the catalogue has one for; of several, the nearest."""
    schema = pa.schema([("did", pa.string()), ("origin", pa.string())])
    if not len(dids) or not tables.exists(FILES):
        return schema.empty_table()
    rows = tables.read_arrow(FILES, columns=["did", "origins"]).combine_chunks()
    rows = rows.filter(pc.is_in(rows["did"], value_set=dids.combine_chunks())).combine_chunks()
    if not rows.num_rows:
        return schema.empty_table()
    origins = rows["origins"].combine_chunks()
    file, origin = pc.list_parent_indices(origins).to_numpy(), pc.list_flatten(origins)
    rtt_ms = np.array([*(region.rtt_ms for region in regions), np.inf])
    away_ms = rtt_ms[first_fit(origin, [region.hosts for region in regions])]
    order = np.lexsort((away_ms, file))
    first = order[np.unique(file[order], return_index=True)[1]]
    return pa.table({"did": rows["did"].take(file[first]), "origin": origin.take(first)}, schema=schema)


def counts_by_place(
    tables: Tables, days: Sequence[str], regions: Sequence[Region], *, before: Sequence[str]
) -> list[Row]:
    """The counts of `days` by cache, then by the region of the origin, with the number of `files`.

    `of`: `cache xc` or `origin near`; for origins see `give_origins`, which looks at the days `before`, too.
    """
    with workspace.opened(ACCESSES) as space:
        database = space.database
        for number, day in enumerate([*before, *days]):
            database.register("day", recorded_reads(tables, day))
            rows = f"SELECT *, {day in days} AS is_counted FROM day"
            into = "INSERT INTO accesses" if number else "CREATE TABLE accesses AS"
            database.execute(f"{into} {rows} WHERE is_counted OR origin IS NOT NULL")
            database.unregister("day")
        give_origins(database, tables, regions)
        origins = space.select("SELECT DISTINCT origin FROM located")["origin"]
        code, names = regions_of(origins, regions)
        place = pa.array(names, pa.string()).take(pa.array(code))
        database.register("region", pa.table({"origin": origins, "place": place}))
        counted = ", ".join(f"CAST(sum({name}) AS DOUBLE) AS {name}" for name in COUNTED)
        by = "SELECT '{0} ' || {0} AS of, count(DISTINCT did) AS files, {1} FROM counted GROUP BY {0}"
        database.execute(
            "CREATE VIEW counted AS SELECT l.* REPLACE (place AS origin) FROM located l "
            "JOIN region r ON l.origin IS NOT DISTINCT FROM r.origin WHERE is_counted"
        )
        of_place = " UNION ALL ".join(by.format(column, counted) for column in ("cache", "origin"))
        counts: list[Row] = space.select(f"SELECT * FROM ({of_place}) ORDER BY of").to_pylist()
    return counts
