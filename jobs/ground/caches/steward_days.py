"""What a cache's steward saved against plain LRU, by day: written by the steward, read by `outcomes`."""

from __future__ import annotations

import dataclasses
import datetime as dt

from features.results import STEWARD_DAYS
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row

_SUMS = ("watched_s", "wan_bytes", "lru_wan_bytes", "saved_wan_bytes", "evicted_files", "evicted_bytes")


@dataclasses.dataclass(frozen=True)
class StewardDay:
    """The figures of one run of a steward on one day so far; see `features.results.STEWARD_DAYS`."""

    started_at: dt.datetime
    watched_s: int
    orders: str
    model_version: str | None
    wan_bytes: int
    lru_wan_bytes: int
    evicted_files: int
    evicted_bytes: int


def keep(tables: Tables, steward_day: StewardDay, *, cache: str, day: str) -> None:
    """Replace the row of this run on `day` (`2026-03-01`); those of runs before it stay."""
    row = dataclasses.asdict(steward_day) | {
        "saved_wan_bytes": steward_day.lru_wan_bytes - steward_day.wan_bytes
    }
    others = [
        one for one in of_day(tables, cache=cache, day=day) if one["started_at"] != steward_day.started_at
    ]
    tables.replace_rows(STEWARD_DAYS, [*others, row], (day, cache))


def of_day(tables: Tables, *, cache: str, day: str) -> list[Row]:
    """The runs of the cache's steward on `day`; empty if there was none."""
    if not tables.exists(STEWARD_DAYS):
        return []
    rows = tables.read_arrow(STEWARD_DAYS, since=day, until=day, owner=cache)
    return list(rows.sort_by("started_at").to_pylist())


def by_day(tables: Tables, *, cache: str, since: str | None, until: str | None) -> list[Row]:
    """The runs of each day together, the oldest day first."""
    if not tables.exists(STEWARD_DAYS):
        return []
    rows = tables.read_arrow(STEWARD_DAYS, since=since, until=until, owner=cache).sort_by(
        [("day", "ascending"), ("started_at", "ascending")]
    )
    days: dict[str, list[Row]] = {}
    for row in rows.to_pylist():
        days.setdefault(row["day"], []).append(row)
    return [{"day": day, **_together(runs)} for day, runs in days.items()]


def _together(runs: list[Row]) -> dict[str, object]:
    texts = {
        name: ", ".join(dict.fromkeys(word for run in runs if run[name] for word in run[name].split(", ")))
        for name in ("orders", "model_version")
    }
    return {**texts, **{name: sum(run[name] for run in runs) for name in _SUMS}}
