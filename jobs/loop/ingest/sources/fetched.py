"""What a cache fetched for each of its reads, by what lay on its disk after it and after the read before.

XCache's own count of missed bytes does not say it: a read of a block that is still coming counts as a hit, so
a cold file of large blocks is nearly all hits. What is on disk is right on every version.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.names import literal
from features.schema import ACCESSES
from jobs.loop.ingest.sources.workspace import Workspace

RowsOf = Callable[[str, Sequence[str] | None], pa.Table]
"""The rows of a day of the table: some columns, or all."""

LOOK_BACK_DAYS = 3
"""The read before is looked for so long, so that a record has a bearing on reads up to as long after it."""

SOURCE = "xcache_gstream"
"""The source whose records are about one read each, one after the other."""

_FACTS = (
    *("event_id", "source", "cache", "did", "name", "accessed_at", "closed_at", "size_bytes", "read_bytes"),
    *("bytes_hit", "bytes_missed", "disk_bytes", "disk_accesses", "bypassed_bytes"),
)
_IS_RECORDED = f"source = '{SOURCE}' AND disk_bytes IS NOT NULL"
_WITH_FILE = "(SELECT *, CASE WHEN starts_with(name, '/') THEN name ELSE did END AS file FROM {})"
"""A path may have got its scope from the catalogue before or after it was read again."""
_BY_FILE = "PARTITION BY cache, file ORDER BY accessed_at, disk_accesses, closed_at, event_id"
_BEFORE = ", ".join(
    f"lag({name}) OVER by_file AS {name}_before" for name in ("accessed_at", "disk_bytes", "disk_accesses")
)
# An origin was asked, so the file was not whole; a smaller count, or less on disk, is of another life of it.
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
    """Give the rows of `merged` their `bytes_missed` where it follows from other rows; returns changed days.

    It follows from the records of the file on the days before, in whatever order they are pulled. `others`:
    days of the table that `merged` lacks. Those of them with a row that changes are added to it.
    """
    touched = _touched(space)
    if not touched:
        return set()
    near = [day for day in others if _is_near(dt.date.fromisoformat(day), touched, LOOK_BACK_DAYS)]
    space.put("near", ACCESSES.partition, (_recorded(rows_of(day, [*_FACTS, "day"])) for day in near))
    selected = (
        f"SELECT {', '.join(_FACTS)}, file, day FROM {_WITH_FILE} SEMI JOIN settling USING (cache, file)"
    )
    facts = " UNION ALL BY NAME ".join(
        f"{selected.format(rows)} WHERE {_IS_RECORDED}" for rows in ("merged", "near")
    )
    befores = f"SELECT *, {_BEFORE} FROM ({facts}) WINDOW by_file AS ({_BY_FILE})"
    after = [day for day in (*near, *map(str, touched)) if _is_near(dt.date.fromisoformat(day), touched, 0)]
    space.database.execute(
        f"CREATE TABLE settled AS SELECT event_id, day, missed, {hit('read_bytes', 'missed')} AS hit "
        f"FROM (SELECT *, {_MISSED} AS missed FROM ({befores}) WHERE bypassed_bytes IS NOT NULL "
        f"AND day IN ({', '.join(map(literal, after))})) WHERE bytes_missed IS DISTINCT FROM missed"
    )
    changed = {row["day"] for row in space.select("SELECT DISTINCT day FROM settled").to_pylist()}
    space.add(("old", rows_of(day, None)) for day in near if day in changed)
    _replace(space)
    return changed


def _touched(space: Workspace) -> list[dt.date]:
    """The days of the new records; the table `settling` has their files."""
    new = f"FROM {_WITH_FILE.format('parsed')} WHERE reason IS NULL AND {_IS_RECORDED}"
    space.database.execute(f"CREATE TABLE settling AS SELECT DISTINCT cache, file {new}")
    days = space.select(f"SELECT DISTINCT CAST(accessed_at AS DATE) AS day {new} ORDER BY day")
    return [row["day"] for row in days.to_pylist()]


def _is_near(day: dt.date, touched: Sequence[dt.date], back_days: int) -> bool:
    return any(-back_days <= (day - other).days <= LOOK_BACK_DAYS for other in touched)


def _recorded(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["source"], SOURCE), pc.is_valid(rows["disk_bytes"])))


def _replace(space: Workspace) -> None:
    """`merged` with what is in `settled`."""
    settled = {"bytes_missed": "missed", "bytes_hit": "hit"}
    columns = ", ".join(
        f"CASE WHEN s.event_id IS NULL THEN m.{name} ELSE s.{new} END AS {name}"
        for name, new in settled.items()
    )
    columns += ", m.changed OR s.event_id IS NOT NULL AS changed"
    space.database.execute('ALTER VIEW merged RENAME TO "merged as recorded"')
    space.database.execute(
        f"CREATE VIEW merged AS SELECT m.* REPLACE ({columns}) "
        'FROM "merged as recorded" m LEFT JOIN settled s USING (event_id, day)'
    )
