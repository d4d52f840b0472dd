"""The bytes a cache fetched for each read: what is on its disk after the read, less what was there before.

XCache's own count of missed bytes is too small: a read of a block that is still being fetched counts as a
hit, so a cold file of large blocks is nearly all hits. The bytes on disk are right in every version.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.names import literal
from features.schema import ACCESSES
from jobs.loop.ingest.sources.workspace import Workspace

RowsOf = Callable[[str, Sequence[str] | None], pa.Table]  # a day's rows: some columns, or all
LOOK_BACK_DAYS = 3  # for the previous read; so a record can change reads this long after it
SOURCE = "xcache_gstream"  # one record per read, so that the disk can be compared between two
_FACTS = (
    *("event_id", "source", "cache", "did", "name", "accessed_at", "closed_at", "size_bytes", "read_bytes"),
    *("bytes_hit", "bytes_missed", "disk_bytes", "disk_accesses", "bypassed_bytes"),
)
_IS_RECORDED = f"source = '{SOURCE}' AND disk_bytes IS NOT NULL"
_WITH_FILE = "(SELECT *, CASE WHEN starts_with(name, '/') THEN name ELSE did END AS file FROM {})"
"""A path is a file's key where there is one: its did may have gained a scope between two reads."""
_BY_FILE = "PARTITION BY cache, file ORDER BY accessed_at, disk_accesses, closed_at, event_id"
_BEFORE = ", ".join(
    f"lag({name}) OVER by_file AS {name}_before" for name in ("accessed_at", "disk_bytes", "disk_accesses")
)
# An origin was asked, so the file was not whole. A smaller count, or less on disk: it was evicted in between.
_CONTINUES = f"""coalesce(accessed_at - accessed_at_before <= INTERVAL {LOOK_BACK_DAYS} DAY
    AND disk_accesses_before < disk_accesses AND disk_bytes_before <= disk_bytes
    AND disk_bytes_before < size_bytes, false)"""
_MISSED = f"""bypassed_bytes + CASE WHEN disk_accesses = 1 THEN disk_bytes
    WHEN {_CONTINUES} THEN disk_bytes - disk_bytes_before
    ELSE greatest(0, least(disk_bytes, read_bytes - bypassed_bytes)) END"""


def hit(read: str, missed: str) -> str:
    """The bytes of `read` that were not fetched for it; null if `missed` is unknown."""
    return f"CASE WHEN {missed} IS NOT NULL THEN greatest(0, {read} - {missed}) END"


def settle(space: Workspace, others: Iterable[str], rows_of: RowsOf) -> set[str]:
    """Correct `bytes_missed` and `bytes_hit` in `merged` by the previous reads; returns the changed days.

    The order in which records are pulled makes no difference. `others`: days of the table that `merged`
    lacks; the rows of such a day are added to it if one of them changes.
    """
    new = f"FROM {_WITH_FILE.format('parsed')} WHERE reason IS NULL AND {_IS_RECORDED}"
    space.database.execute(f"CREATE TABLE settling AS SELECT DISTINCT cache, file {new}")
    days = space.select(f"SELECT DISTINCT CAST(accessed_at AS DATE) AS day {new} ORDER BY day")["day"]
    touched = list(days.to_pylist())
    if not touched:
        return set()
    near = [day for day in others if _is_near(dt.date.fromisoformat(day), touched, LOOK_BACK_DAYS)]
    of_days = (rows_of(day, [*_FACTS, "day"]) for day in near)
    is_recorded = (pc.field("source") == SOURCE) & pc.field("disk_bytes").is_valid()
    space.put("near", ACCESSES.partition, (rows.filter(is_recorded) for rows in of_days))
    selected = (
        f"SELECT {', '.join(_FACTS)}, file, day FROM {_WITH_FILE} SEMI JOIN settling USING (cache, file)"
    )
    facts = " UNION ALL BY NAME ".join(
        f"{selected.format(rows)} WHERE {_IS_RECORDED}" for rows in ("merged", "near")
    )
    with_previous = f"SELECT *, {_BEFORE} FROM ({facts}) WINDOW by_file AS ({_BY_FILE})"
    after = [day for day in (*near, *map(str, touched)) if _is_near(dt.date.fromisoformat(day), touched, 0)]
    space.database.execute(
        f"CREATE TABLE settled AS SELECT event_id, day, missed, {hit('read_bytes', 'missed')} AS hit "
        f"FROM (SELECT *, {_MISSED} AS missed FROM ({with_previous}) WHERE bypassed_bytes IS NOT NULL "
        f"AND day IN ({', '.join(map(literal, after))})) WHERE bytes_missed IS DISTINCT FROM missed"
    )
    changed = set(space.select("SELECT DISTINCT day FROM settled")["day"].to_pylist())
    space.add(("old", rows_of(day, None)) for day in near if day in changed)
    _replace(space)
    return changed


def _is_near(day: dt.date, touched: Sequence[dt.date], back_days: int) -> bool:
    return any(-back_days <= (day - other).days <= LOOK_BACK_DAYS for other in touched)


def _replace(space: Workspace) -> None:
    space.database.execute('ALTER VIEW merged RENAME TO "merged as recorded"')
    space.database.execute(
        "CREATE VIEW merged AS SELECT m.* REPLACE ("
        "CASE WHEN s.event_id IS NULL THEN m.bytes_missed ELSE s.missed END AS bytes_missed, "
        "CASE WHEN s.event_id IS NULL THEN m.bytes_hit ELSE s.hit END AS bytes_hit, "
        "m.changed OR s.event_id IS NOT NULL AS changed) "
        'FROM "merged as recorded" m LEFT JOIN settled s USING (event_id, day)'
    )
