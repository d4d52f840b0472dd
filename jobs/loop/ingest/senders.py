"""Whether each name of a cache in recent accesses is that of one; the setting `hosts` tells them apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from features.schema import ACCESSES
from jobs.ground.store.tables import Tables, read_partitions
from jobs.loop.ingest.sources import workspace
from jobs.loop.ingest.sources.workspace import Workspace

_LAST_DAYS = 3
_FEWEST = 10
"""Files read in an hour under two names, before these may be of one cache."""
_SHARED = 0.8
"""The share of these files that both names must have read."""
_MOST_SITES = 3
"""Sites that a sentence names."""
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


class Named(NamedTuple):
    """The number of names of caches, and what is wrong with them, in sentences."""

    n: int
    faults: list[str]


def named(tables: Tables) -> Named:
    """The caches in their own records of the last days that there are."""
    head = tables.head(ACCESSES)
    last = sorted(head.partitions)[-_LAST_DAYS:]
    rows = read_partitions(head, {key: head.partitions[key] for key in last}, _COLUMNS)
    is_own = pc.and_(pc.is_in(rows["source"], value_set=_OWN), pc.is_valid(rows["cache"]))
    rows = rows.filter(is_own)
    with workspace.opened(ACCESSES) as space:
        space.keep(rows.schema, rows.to_batches())
        return Named(len(rows["cache"].unique()), list(_faults(space)))


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
