"""What caches served in the last day and week, by their own records: for the operator's page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.times import DAY_S, HOUR_S, day_label
from features.schema import ACCESSES
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.operator.site_report.recorded_counts import counts_of_day, sums_by

HOURS: Final = 24
DAYS: Final = 7


@dataclasses.dataclass(frozen=True)
class Step:
    """An hour or a day from `from_s` on: bytes that jobs read, those of them from disk, and those fetched.

    `wan_bytes` were fetched, read or not; `unknown_reads` are in no sum.
    """

    from_s: int
    read_bytes: int
    hit_bytes: int
    wan_bytes: int
    unknown_reads: int

    @property
    def byte_hit_ratio(self) -> float | None:
        """Share of the bytes read that came from the cache's disk; None: nothing was read."""
        return self.hit_bytes / self.read_bytes if self.read_bytes else None


@dataclasses.dataclass(frozen=True)
class History:
    """The last `HOURS` and the last `DAYS` of one cache, the present ones among them; the oldest first."""

    hours: Sequence[Step]
    days: Sequence[Step]

    @property
    def sums(self) -> dict[str, Step]:
        """All hours, and all days, by name; without those in which nothing was recorded."""
        spans = {f"last {HOURS} hours": self.hours, f"last {DAYS} days": self.days}
        return {
            name: _sum(steps)
            for name, steps in spans.items()
            if any(one.read_bytes or one.unknown_reads for one in steps)
        }


class Histories:
    """The histories of the caches of `settings`; the counts of a day are kept while its records stay."""

    def __init__(self, settings: Settings) -> None:
        self._tables = Tables.of(settings)
        self._kept: dict[str, tuple[object, pa.Table]] = {}

    def of(self, cache: str, *, now_s: int) -> History:
        """The history of `cache` up to `now_s`. Raises as tables do."""
        first_s = now_s // DAY_S * DAY_S - (DAYS - 1) * DAY_S
        days = [day_label(first_s + n * DAY_S) for n in range(DAYS)]
        by_day = {day: self._counts(day) for day in days}
        self._kept = {day: one for day, one in self._kept.items() if day in by_day}
        counts = pa.concat_tables(by_day.values())
        mine = sums_by(counts.filter(pc.equal(counts["cache"], cache)), "hour")
        first_hour = now_s // HOUR_S - HOURS + 1
        return History(_steps(mine, first_hour, HOURS, 1), _steps(mine, first_s // HOUR_S, DAYS, 24))

    def _counts(self, day: str) -> pa.Table:
        records = self._tables.head(ACCESSES).select(since=day, until=day)
        kept = self._kept.get(day)
        if kept is None or kept[0] != records:
            kept = self._kept[day] = records, counts_of_day(self._tables, day)
        return kept[1]


def _steps(counts: pa.Table, first_hour: int, n_steps: int, hours: int) -> list[Step]:
    at = (counts["hour"].to_numpy() - first_hour) // hours
    is_in = (at >= 0) & (at < n_steps)
    names = ("read_bytes", "hit_bytes", "missed_bytes", "unknown_reads")
    sums = (np.bincount(at[is_in], counts[name].to_numpy()[is_in], n_steps).tolist() for name in names)
    starts = (first_hour + hours * np.arange(n_steps)) * HOUR_S
    rows = zip(starts.tolist(), *sums, strict=True)
    return [Step(*map(int, row)) for row in rows]


def _sum(steps: Sequence[Step]) -> Step:
    names = [field.name for field in dataclasses.fields(Step)][1:]
    return Step(steps[0].from_s, *(sum(getattr(one, name) for one in steps) for name in names))
