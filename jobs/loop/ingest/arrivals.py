"""Step `arrivals`: whether the sources delivered by a decision time what they usually do.

Whether each name of a cache in recent accesses is that of one; the setting `hosts` tells them apart.
"""

import dataclasses
import datetime as dt
import statistics
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.times import DAY_S, as_of_label, day_label
from features.common.units import duration_label
from features.results import ARRIVALS
from features.schema import ACCESSES, REJECTS
from jobs.ground.settings.sources import ArrivalSettings
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import sources
from jobs.loop.ingest.sources import workspace
from jobs.loop.ingest.sources.workspace import Workspace

_WEEK_S = 7 * DAY_S
_SHORTEST_S = 3600  # shorter cycles are judged by their last hour, as fewer reads say less
EXPECTED_REJECTS = (
    "^(not a read|not a job|not of the f-stream|our own|client is a cache|still open|no accesses|"
    "close without its open|transfer not done: [A-Z])"
)
"""Reasons that a sound source has too: records of what is no read of a job, or not yet, or no job that ended
here."""


@dataclasses.dataclass(frozen=True)
class Arrival:
    """What one source delivered by a decision time; `why` it is incomplete, empty if it is complete.

    `rows`: known within the judged time; `expected`: usual then (None: too little past); `rejected_share`:
    faulty of the day's; `newest_at`: the newest known read.
    """

    as_of: str
    source: str
    rows: int
    expected: float | None
    rejected_share: float
    newest_at: dt.datetime | None
    why: str


class _Known:
    """The reads that were known at any time, a day of accesses read at most once."""

    def __init__(self, tables: Tables) -> None:
        self._head = tables.head(ACCESSES)
        self._days: dict[str, pa.Table] = {}

    def between(self, source: str, since_s: int, until_s: int) -> pa.ChunkedArray:
        """`known_at` of the reads of `source` known from `since_s` until before `until_s`."""
        days = {day_label(at) for at in (since_s - DAY_S, *range(since_s, until_s, DAY_S), until_s)}
        rows = pa.concat_tables([self._day(day) for day in sorted(days)])
        known = rows.filter(pc.equal(rows["source"], source))["known_at"]
        first, last = (pa.scalar(dt.datetime.fromtimestamp(at, dt.UTC)) for at in (since_s, until_s))
        return known.filter(pc.and_(pc.greater_equal(known, first), pc.less(known, last)))

    def _day(self, day: str) -> pa.Table:
        if day not in self._days:
            self._days[day] = self._head.rows(["source", "known_at"], since=day, until=day)
        return self._days[day]


def run(settings: Settings, *, as_ofs: Sequence[int]) -> list[Arrival]:
    """Judge every source of `[airflow] pull` with accesses at `as_ofs`, into the table arrivals."""
    tables, cycle_s = Tables.of(settings), settings.features.cycle
    tables.check_writable(ARRIVALS)
    known = _Known(tables)
    pulled = sorted(sources.select_sources(settings.airflow.pull, lambda source: source.table is ACCESSES))
    answer = []
    for as_of_s in as_ofs:
        arrivals = [
            judged(tables, known, settings.arrivals, source, as_of_s, cycle_s=cycle_s) for source in pulled
        ]
        rows = [{**dataclasses.asdict(arrival), "complete": not arrival.why} for arrival in arrivals]
        tables.replace_rows(ARRIVALS, rows, MomentKey.at(as_of_s, settings.region.name))
        answer += arrivals
    return answer


def judged(
    tables: Tables, known: _Known, limits: ArrivalSettings, source: str, as_of_s: int, *, cycle_s: int
) -> Arrival:
    """What `source` delivered by `as_of_s`, against `limits`."""
    until_s, span_s = as_of_s - limits.delay, max(cycle_s, _SHORTEST_S)
    n_rows = len(known.between(source, until_s - span_s, until_s))
    expected = _usual(known, limits.weeks, source, until_s, span_s)
    newest = pc.max(known.between(source, until_s - limits.max_age, as_of_s)).as_py()
    day_s = as_of_s - as_of_s % DAY_S
    # Rejects have no time: those of the whole day are compared with its reads, also when it is judged again.
    n_today = len(known.between(source, min(day_s, until_s - span_s), day_s + DAY_S))
    today = day_label(as_of_s)
    rejects = tables.head(REJECTS).rows(["source", "reason", "n_rows"], since=today, until=today)
    is_expected = pc.match_substring_regex(rejects["reason"], EXPECTED_REJECTS)
    is_faulty = pc.and_not(pc.equal(rejects["source"], source), is_expected)
    n_faulty = int(pc.sum(rejects["n_rows"].filter(is_faulty)).as_py() or 0)
    share = n_faulty / max(1, n_faulty + n_today)
    why = []
    if expected is not None and expected >= limits.least and n_rows < limits.usual_share * expected:
        why.append(f"{n_rows} reads in {duration_label(span_s)}, where {expected:.0f} are usual")
    if share > limits.rejected:
        why.append(f"{100 * share:.0f} % of the day's records were rejected")
    if newest is None:
        why.append(f"nothing newer than {duration_label(limits.max_age)}")
    return Arrival(as_of_label(as_of_s), source, n_rows, expected, share, newest, "; ".join(why))


def _usual(known: _Known, weeks: int, source: str, until_s: int, span_s: int) -> float | None:
    """The median of the same hours of this weekday before; with one such week only, of the days before."""
    same_weekday = [until_s - n * _WEEK_S for n in range(1, weeks + 1)]
    for ends in (same_weekday, [until_s - n * DAY_S for n in range(1, 8)]):
        # The newest first, since the source has delivered.
        while ends and not len(known.between(source, ends[-1] - max(span_s, DAY_S), ends[-1])):
            ends.pop()
        if len(ends) > 1:
            return statistics.median(len(known.between(source, end - span_s, end)) for end in ends)
    return None


def shortfalls(tables: Tables, *, region: str, as_of_s: int) -> list[str]:
    """Why the records of a decision time are incomplete, a sentence per source."""
    rows = tables.head(ARRIVALS).rows(["source", "why"], as_of=as_of_label(as_of_s), owner=region)
    return [f"{row['source']} is incomplete: {row['why']}" for row in rows.to_pylist() if row["why"]]


_LAST_DAYS = 3
_FEWEST = 10  # files read in an hour under two names, before these may be of one cache
_SHARED = 0.8  # the share of these files that both names must have read
_MOST_SITES = 3  # sites that a sentence names
_REMEDY = 'if they are several, set hosts = ["HOST"] in [caches.NAME] for each, and pull again'
_G_STREAM, _F_STREAM = "xcache_gstream", "xrootd_fstream"
_OWN = pa.array([_G_STREAM, _F_STREAM, "xcache_cinfo"])
_COLUMNS = ["cache", "site", "source", "did", "accessed_at", "disk_accesses"]

# A count of a file's accesses that falls and goes on where it was: (5, 2, 6). A cache that fetched the file
# anew would go on with 3.
_MIXED = f"""SELECT DISTINCT cache FROM (
    SELECT cache, disk_accesses AS now, lag(disk_accesses) OVER w AS last,
        lag(disk_accesses, 2) OVER w AS before
    FROM raw WHERE source = '{_G_STREAM}' AND disk_accesses IS NOT NULL
    WINDOW w AS (PARTITION BY cache, did ORDER BY accessed_at, disk_accesses)
) WHERE last < before AND now = before + 1 ORDER BY cache"""
_OF_SITES = f"""SELECT cache, list_sort(list(DISTINCT site)) AS sites FROM raw
    WHERE source = '{_G_STREAM}' AND site IS NOT NULL
    GROUP BY cache HAVING count(DISTINCT site) > 1 ORDER BY cache"""
_ALIKE = f"""WITH hours AS (
    SELECT DISTINCT cache, source = '{_F_STREAM}' AS is_f, did, date_trunc('hour', accessed_at) AS hour
    FROM raw
), sizes AS (SELECT cache, is_f, count(*) AS n FROM hours GROUP BY ALL)
SELECT a.cache AS host, b.cache FROM hours a JOIN hours b USING (did, hour)
    JOIN sizes x ON x.cache = a.cache AND x.is_f JOIN sizes y ON y.cache = b.cache AND NOT y.is_f
    WHERE a.is_f AND NOT b.is_f AND a.cache <> b.cache GROUP BY a.cache, b.cache, x.n, y.n
    HAVING count(*) >= greatest({_FEWEST}, {_SHARED} * least(x.n, y.n)) ORDER BY ALL"""


def named(tables: Tables) -> tuple[int, list[str]]:
    """The number of names of caches in their own records of the last days, and what is wrong with them."""
    head = tables.head(ACCESSES)
    rows = head.rows_of(sorted(head.partitions)[-_LAST_DAYS:], _COLUMNS)
    rows = rows.filter(pc.and_(pc.is_in(rows["source"], value_set=_OWN), pc.is_valid(rows["cache"])))
    with workspace.opened(ACCESSES) as space:
        space.keep(rows.schema, rows.to_batches())
        return len(rows["cache"].unique()), list(_faults(space))


def _faults(space: Workspace) -> Iterator[str]:
    of_sites = space.select(_OF_SITES).to_pylist()
    for row in of_sites:
        sites = ", ".join(row["sites"][:_MOST_SITES])
        yield f"servers of {len(row['sites'])} sites ({sites}) report as {row['cache']!r}: {_REMEDY}"
    for row in space.select(_MIXED).to_pylist():
        if row["cache"] not in {other["cache"] for other in of_sites}:
            why = f"several servers report as {row['cache']!r}, or it holds files under two paths"
            yield f"{why}: {_REMEDY}"
    for row in space.select(_ALIKE).to_pylist():
        yield (
            f"{row['host']!r} reads what {row['cache']!r} reads: if they are one cache, set hosts = "
            f'["{row["host"]}"] in [caches.{row["cache"]}], and pull again'
        )
