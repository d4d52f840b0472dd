"""What caches recorded: hits and misses per day and hour, in reads and bytes, by cache and origin."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import FloatArray, IntArray
from features.common.times import DAY_S, HOUR_S, day_label
from features.schema import ACCESSES
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row
from jobs.operator.site_report.recorded_counts import counts_by_place, counts_of_day, sums_by
from jobs.pages.page import Figure, Section
from jobs.pages.plots import hits_and_misses_over_time
from replay.study.benefit import Region

DAYS = 91
"""Of records that are shown, up to the newest."""
HOURS = 7 * 24
"""Of records that are shown hour by hour."""
RECENT_DAYS = 14
"""Of records in the table."""
FEWEST_STEPS = 2
"""Days or hours with records that make a plot."""
MOST_CACHES = 6
"""Caches with plots of their own: those that served most."""
_NOTE = (
    "By the caches' own records (g-stream, else cinfo). A read that took more bytes from the disk than were "
    "fetched for it is a hit; one of which that is unknown is in no ratio. Missed bytes were fetched, read "
    f"or not. The table is about the last {RECENT_DAYS} days; a hit counts for the origin of the file's last "
    "fetch, else for the nearest in the catalogue."
)
_OF_PLOTS = " Steps are days or hours (UTC), lines the mean of each day and the 13 days before."


def recorded_section(tables: Tables, regions: Sequence[Region]) -> Section | None:
    """The section about the caches' records; None if there are none."""
    days = sorted({key[0] for key in tables.head(ACCESSES).partitions})
    first = (dt.date.fromisoformat(days[-1]) - dt.timedelta(DAYS - 1)).isoformat() if days else ""
    days = [day for day in days if day >= first]
    parts = [counts_of_day(tables, day) for day in days]
    counts = pa.concat_tables(parts) if parts else None
    if counts is None or not counts.num_rows:
        return None
    until_s = (int(pc.max(counts["hour"]).as_py()) * HOUR_S // DAY_S + 1) * DAY_S
    recent = day_label(until_s - RECENT_DAYS * DAY_S)
    of_place = counts_by_place(
        tables,
        [day for day in days if day >= recent],
        regions,
        before=[day for day in days if day < recent],
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
