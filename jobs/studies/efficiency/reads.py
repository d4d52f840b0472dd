"""Where the data of each job came from: job records joined with the accesses."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import StaleInputError
from features.common.hosts import hosts_of
from features.common.times import DAY_S, day_label, parse_as_of
from features.schema import ACCESSES, JOB_RECORDS
from jobs.ground.store.commits import Snapshot
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.sources import workspace
from jobs.loop.ingest.sources.workspace import Workspace
from jobs.operator.site_report.recorded import give_origins
from replay.study.benefit import Region
from replay.study.use import UNKNOWN, regions_of

LOCAL, HIT, MISS, REMOTE = PLACES = ("local", "hit", "miss", "remote")
"""From the site's storage, a cache's disk, an origin through a cache, and an origin past all caches."""
MIXED, NOWHERE = "mixed", "no reads found"
PURE = 0.8  # a job belongs to the place that gave it at least this share of its bytes; else it is mixed
MOST_KINDS = 20  # kinds of work with figures: those with most core time; the rest are `others`
MOST_PAIRS = 1_000_000  # of a file in one hour; with more, reads without a job are nobody's
_LONGEST_DAYS = 7  # reads are looked for this long after the last day of starts
_SLACK = "INTERVAL 60 SECOND"  # clocks of caches, nodes and batch systems differ by less
_OF_JOBS = (
    *("job", "user", "task", "kind", "activity", "site", "node", "started_at", "ended_at", "cores", "cpu_s"),
    *("wall_s", "failed", "read_bytes", "files", "source", "event_id", "known_at"),
)
_OF_READS = (
    *("did", "name", "site", "cache", "origin", "job", "accessed_at", "closed_at", "size_bytes"),
    *("read_bytes", "bytes_hit", "bytes_missed", "event_id"),
)
_DOMAIN = "nullif(regexp_extract({}, '[.]([^.]+[.].+)$', 1), '')"
_TOTAL = " + ".join(PLACES)
_CASES = " ".join(f"WHEN {place} >= {PURE} * ({_TOTAL}) THEN '{place}'" for place in PLACES)
_HOURS = "generate_series(CAST(epoch({}) // 3600 AS BIGINT), CAST(epoch({}) // 3600 AS BIGINT))"
_STEPS = (
    # Days are merged one by one: a job with two starts is on two of them.
    """DELETE FROM reported WHERE rowid NOT IN
    (SELECT arg_max(rowid, (ended_at IS NOT NULL, known_at, started_at)) FROM reported GROUP BY event_id)""",
    "CREATE VIEW job AS SELECT * REPLACE (lower(node) AS node), rowid AS id FROM reported",
    # A reader that never closes is no reader of a week later.
    f"""CREATE VIEW read AS SELECT *, rowid AS id, least(coalesce(closed_at, accessed_at),
    accessed_at + INTERVAL {_LONGEST_DAYS} DAY) AS left_at FROM located""",
    f"""CREATE TABLE named AS SELECT j.id AS job, r.id AS read FROM job j JOIN read r ON r.job = j.job
    AND r.accessed_at BETWEEN coalesce(j.started_at, j.known_at - INTERVAL {_LONGEST_DAYS} DAY) - {_SLACK}
    AND coalesce(j.ended_at, j.known_at) + {_SLACK}""",
    # What a job reads, and when: by records that name it, else by its own.
    f"""CREATE TABLE claim AS SELECT n.job, r.name, r.site, r.accessed_at - {_SLACK} AS since,
    CASE WHEN r.closed_at IS NULL THEN j.ended_at ELSE r.left_at END + {_SLACK} AS until
    FROM named n JOIN read r ON r.id = n.read JOIN job j ON j.id = n.job
    UNION ALL SELECT id, unnest(files), site, started_at - {_SLACK}, ended_at + {_SLACK} FROM job
    WHERE id NOT IN (SELECT job FROM named)""",
    f"""CREATE TABLE nameless AS SELECT id, site, accessed_at, left_at, unnest([name, did]) AS name,
    {_HOURS.format("accessed_at", "left_at")} AS hours FROM read
    WHERE job IS NULL AND (name IN (SELECT name FROM claim) OR did IN (SELECT name FROM claim))""",
    # By the hour, since a file may be read very often.
    f"""CREATE TABLE claimed AS SELECT *, unnest({_HOURS.format("since", "until")}) AS hour FROM claim
    WHERE name IN (SELECT name FROM nameless)""",
    # Each read with each job: of a file that very many read at once, the pairs would fill the disk.
    f"""CREATE TABLE crowd AS SELECT name, hour FROM
    (SELECT name, hour, count(*) AS jobs FROM claimed GROUP BY ALL) JOIN
    (SELECT name, hour, count(*) AS reads FROM (SELECT name, unnest(hours) AS hour FROM nameless)
    GROUP BY ALL) USING (name, hour)
    WHERE jobs * reads > {MOST_PAIRS}""",
    "DELETE FROM claimed WHERE (name, hour) IN (FROM crowd)",
    # Sources name sites in their own ways; only equal ways compare.
    """CREATE TABLE fits AS SELECT DISTINCT c.job, r.id AS read FROM claimed c
    JOIN (SELECT * EXCLUDE (hours), unnest(hours) AS hour FROM nameless) r USING (name, hour)
    WHERE r.accessed_at <= c.until AND r.left_at >= c.since AND (coalesce(r.site = c.site, true)
    OR r.site NOT IN (SELECT site FROM claim WHERE site IS NOT NULL))""",
    # A cache reports a file once for all that hold it open at the same time.
    """CREATE TABLE pair AS SELECT job, read, 1 AS sharers FROM named
    UNION ALL SELECT job, read, count(*) OVER (PARTITION BY read) FROM fits""",
    f"""CREATE TABLE part AS SELECT p.job, r.name,
    r.bytes_hit IS NOT NULL OR r.bytes_missed IS NOT NULL AS is_told,
    coalesce(r.bytes_hit, 0) / sharers AS hit,
    coalesce(least(r.bytes_missed, CASE WHEN r.read_bytes >= r.bytes_hit
    THEN r.read_bytes - r.bytes_hit END), 0) / sharers AS miss,
    CASE WHEN r.cache IS NULL THEN coalesce(r.read_bytes, r.size_bytes, 0) / sharers ELSE 0 END AS direct,
    coalesce(o.rtt_ms = 0 OR lower(r.origin) = lower(coalesce(r.site, j.site))
    OR ends_with(j.node, '.' || o.host) OR {_DOMAIN.format("o.host")} = {_DOMAIN.format("j.node")},
    false) AS is_local, o.region, o.rtt_ms
    FROM pair p JOIN read r ON r.id = p.read JOIN job j ON j.id = p.job LEFT JOIN origins o USING (origin)""",
    # A cache's own record of a read tells more than any other of the same file.
    """CREATE TABLE source AS SELECT job, sum(hit) AS hit, sum(miss) AS miss,
    sum(CASE WHEN NOT is_told AND is_local THEN direct ELSE 0 END) AS local,
    sum(CASE WHEN NOT is_told AND NOT is_local THEN direct ELSE 0 END) AS remote,
    arg_max(region, hit + miss + direct) AS region, arg_max(rtt_ms, hit + miss + direct) AS rtt_ms
    FROM (SELECT * FROM part QUALIFY is_told = bool_or(is_told) OVER (PARTITION BY job, name))
    GROUP BY job""",
    f"""CREATE TABLE jobs AS SELECT j.* EXCLUDE (files, event_id, id, known_at)
    REPLACE (CASE WHEN kind IS NULL OR kind IN
    (SELECT kind FROM job GROUP BY kind ORDER BY sum(wall_s * cores) DESC LIMIT {MOST_KINDS})
    THEN kind ELSE 'others' END AS kind),
    CASE WHEN coalesce({_TOTAL}, 0) = 0 THEN '{NOWHERE}' {_CASES} ELSE '{MIXED}' END AS place,
    coalesce(region, '{UNKNOWN}') AS region, rtt_ms,
    {", ".join(f"CAST(coalesce({place}, 0) AS BIGINT) AS {place}_bytes" for place in PLACES)}
    FROM job j LEFT JOIN source s ON s.job = j.id""",
)


@dataclasses.dataclass(frozen=True)
class JobSelection:
    """Jobs that started on the days `since` … `until` (`2026-03-01`), or were reported then without a start.

    `site`, `activity`, `source`: only those of this site, activity, or reader; None: all.
    """

    since: str
    until: str
    site: str | None = None
    activity: str | None = None
    source: str | None = None


@contextmanager
def jobs_with_places(
    tables: Tables, selection: JobSelection, regions: Sequence[Region]
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the table `jobs`, a row per job, `pair`, the reads of jobs, and `crowd`.

    `jobs`: columns of job_records, `place` (of PLACES, MIXED or NOWHERE), bytes by place, `region`, `rtt_ms`
    of most. A read is a job's if it names it, else by file, time and site, shared among those that fit; in
    `crowd`, files and hours of too many, nobody's. Raises StaleInputError.
    """
    last = day_label(parse_as_of(f"{selection.until}T00:00:00Z") + _LONGEST_DAYS * DAY_S)
    with workspace.opened(JOB_RECORDS) as space:
        database = space.database
        _fill(space, "reported", tables.head(JOB_RECORDS), _OF_JOBS, selection)
        if not database.sql("SELECT 1 FROM reported LIMIT 1").fetchall():
            raise StaleInputError(
                f"no such job records from {selection.since} to {selection.until} under {tables.root}; "
                "pull --source htcondor_history, wmarchive or panda_jobs first (docs/pull.md)"
            )
        _fill(space, "accesses", tables.head(ACCESSES), _OF_READS, JobSelection(selection.since, last))
        give_origins(database, tables, regions)
        database.register("origins", _origins(database, regions))
        for step in _STEPS:
            database.execute(step)
        yield database


def _fill(
    space: Workspace, name: str, head: Snapshot, columns: Sequence[str], selection: JobSelection
) -> None:
    """The table `name`: `columns` of the rows that are selected."""

    def batches() -> Iterator[pa.RecordBatch]:
        for key in head.select(since=selection.since, until=selection.until):
            rows = head.rows_of([key], columns)
            for column in ("site", "activity", "source"):
                if (value := getattr(selection, column)) is not None:
                    rows = rows.filter(pc.equal(rows[column], value))
            yield from rows.to_batches()

    space.keep(head.rows_of([], columns).schema, batches(), name)


def _origins(database: duckdb.DuckDBPyConnection, regions: Sequence[Region]) -> pa.Table:
    """Each origin once: its host, region and round-trip time."""
    origins = database.sql("SELECT DISTINCT origin FROM located WHERE origin IS NOT NULL").to_arrow_table()
    origin = origins["origin"].combine_chunks()
    code, names = regions_of(pa.chunked_array([origin]), regions)
    rtt_ms = [*(region.rtt_ms for region in regions), None]
    return pa.table(
        {
            "origin": origin,
            "host": hosts_of(origin),
            "region": pa.array([names[k] for k in code], pa.string()),
            "rtt_ms": pa.array([rtt_ms[k] for k in code], pa.float64()),
        }
    )
