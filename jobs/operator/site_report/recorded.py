"""Hits and misses as caches recorded them: by hour and cache, and by origin, which no hit names."""

import datetime as dt
import time
from collections.abc import Iterator, Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import FloatArray, IntArray
from features.common.hosts import first_fit
from features.common.times import DAY_S, HOUR_S, day_label
from features.schema import ACCESSES, FILES
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row
from jobs.loop.ingest import sources
from jobs.loop.ingest.sources import workspace
from jobs.pages.page import Figure, Section
from jobs.pages.plots import hits_and_misses_over_time
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
DAYS = 91  # of records that are shown, up to the newest until today
HOURS = 7 * 24  # of records that are shown hour by hour
RECENT_DAYS = 14  # of records in the table
FEWEST_STEPS = 2  # days or hours with records that make a plot
MOST_CACHES = 6  # caches with plots of their own: those that served most
_NOTE = (
    "By the caches' own records (g-stream, else cinfo). A read that took more bytes from the disk than were "
    "fetched for it is a hit; one of which that is unknown is in no ratio. Missed bytes were fetched, read "
    f"or not. The table is about the last {RECENT_DAYS} days; a hit counts for the origin of the file's last "
    "fetch, else for the nearest in the catalogue."
)
_OF_PLOTS = " Steps are days or hours (UTC), lines the mean of each day and the 13 days before."


def counts_of_day(tables: Tables, day: str) -> pa.Table:
    """Reads and bytes of one day by hour (since 1970) and cache.

    `unknown_reads`: of which the cache does not say what it fetched; they are in none of the others.
    `missed_bytes` were fetched, read or not.
    """
    return sums_by(recorded_reads(tables, day), "hour", "cache")


def sums_by(counts: pa.Table, *by: str) -> pa.Table:
    sums = counts.group_by(list(by)).aggregate([(name, "sum") for name in COUNTED])
    return sums.rename_columns({f"{name}_sum": name for name in COUNTED}).select([*by, *COUNTED])


def recorded_reads(tables: Tables, day: str) -> pa.Table:
    """The reads in caches' own records of one day; those of a second source do not count again."""
    rows = tables.head(ACCESSES).rows(_COLUMNS, since=day, until=day)
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

    A read without origin gets that of the file's last fetch, here, else anywhere; else the nearest region.
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
    rtt_ms = np.array([*(region.rtt_ms for region in regions), None], np.float64)  # unknown: sorted last
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


def recorded_section(tables: Tables, regions: Sequence[Region]) -> Section | None:
    """The section about the caches' records; None if there are none."""
    today = day_label(int(time.time()))  # a record of a wrong clock, in years to come, would hide all others
    days = sorted({key[0] for key in tables.head(ACCESSES).partitions if key[0] <= today})
    first = (dt.date.fromisoformat(days[-1]) - dt.timedelta(DAYS - 1)).isoformat() if days else ""
    days = [day for day in days if day >= first]
    parts = [counts_of_day(tables, day) for day in days]
    counts = pa.concat_tables(parts) if parts else None
    if counts is None or not counts.num_rows:
        return None
    until_s = (int(pc.max(counts["hour"]).as_py()) * HOUR_S // DAY_S + 1) * DAY_S
    recent = day_label(until_s - RECENT_DAYS * DAY_S)
    of_place = counts_by_place(
        tables, [day for day in days if day >= recent], regions, before=[day for day in days if day < recent]
    )
    figures = list(_figures(counts, until_s))
    note = _NOTE + (_OF_PLOTS if figures else "")
    return Section("Hits and misses, as recorded", note, figures, _rows(of_place))


def _figures(counts: pa.Table, until_s: int) -> Iterator[Figure]:
    caches = sums_by(counts, "cache").sort_by([("hit_bytes", "descending")])["cache"].to_pylist()
    everywhere = "all caches" if len(caches) > 1 else str(caches[0])
    yield from _pair(counts, DAY_S, until_s, f"per day, {everywhere}")
    yield from _pair(counts, HOUR_S, until_s, f"per hour, {everywhere}")
    for cache in caches[:MOST_CACHES] if len(caches) > 1 else ():
        yield from _pair(counts.filter(pc.equal(counts["cache"], cache)), DAY_S, until_s, f"per day, {cache}")


def _pair(counts: pa.Table, step_s: int, until_s: int, what: str) -> Iterator[Figure]:
    """A plot of reads and one of bytes; hours are those of the last `HOURS`."""
    for unit, names in (("reads", ("hits", "misses")), ("bytes", ("hit_bytes", "missed_bytes"))):
        start_s, hits, misses = _series(counts, step_s, until_s, names)
        if np.count_nonzero(hits + misses) < FEWEST_STEPS:
            return
        plot = hits_and_misses_over_time(start_s, hits, misses, step_s=step_s, unit=unit)
        yield Figure(plot, f"Hits and misses {what}, in {unit}")


def _series(
    counts: pa.Table, step_s: int, until_s: int, names: tuple[str, str]
) -> tuple[IntArray, FloatArray, FloatArray]:
    """The start of each step from the first record on, and the sums in it; a step without records has 0."""
    hour = counts["hour"].to_numpy()
    first_s = int(hour.min()) * HOUR_S // DAY_S * DAY_S
    if step_s == HOUR_S:
        first_s = max(first_s, until_s - HOURS * HOUR_S)
    start_s = np.arange(first_s, until_s, step_s)
    at = (hour * HOUR_S - first_s) // step_s
    is_in = at >= 0
    first, second = (np.bincount(at[is_in], counts[name].to_numpy()[is_in], start_s.size) for name in names)
    return start_s, first, second


def _rows(places: Sequence[Row]) -> list[Row]:
    """A row per cache, and per region of origins, with its shares of all caches' files, reads and bytes."""
    caches = [row for row in places if str(row["of"]).startswith("cache ")]
    total = {name: max(1, sum(row[name] for row in caches)) for name in ("hits", "misses", "read_bytes")}
    files = max(1, sum(row["files"] for row in places if row not in caches))
    return [
        {
            "of": row["of"],
            "files": row["files"],
            "of_files_share": row["files"] / files if row not in caches else None,
            "reads": (reads := int(row["hits"] + row["misses"])),
            "of_reads_share": reads / (total["hits"] + total["misses"]),
            "hit_ratio": row["hits"] / reads if reads else None,
            "unknown_reads": int(row["unknown_reads"]),
            "read_bytes": row["read_bytes"],
            "of_bytes_share": row["read_bytes"] / total["read_bytes"],
            "byte_hit_ratio": row["hit_bytes"] / row["read_bytes"] if row["read_bytes"] else None,
            "missed_bytes": row["missed_bytes"],
        }
        for row in places
    ]
