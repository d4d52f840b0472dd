"""The state of a region, its caches, stewards and models, each part by itself: one may be unknown."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import CachecastError, StaleInputError
from features.common.times import DAY_S, HOUR_S, day_label
from features.results import PROMOTIONS
from features.schema import ACCESSES
from jobs.ground.caches import steward_days
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store import generated
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row
from jobs.loop.evaluate.decisions import Serving, serving
from jobs.operator.operate import status
from jobs.operator.operate.alarms import Alarm, CacheStatus, Status, cache_alarms, silence
from jobs.operator.site_report.recorded import counts_of_day, sums_by
from prefetch.journal.journal import Journal
from prefetch.placement.pages import LastHeartbeat
from prefetch.steward.figures import StewardFigures, read

HOURS: Final = 24
DAYS: Final = 7
T = TypeVar("T")
_log = logging.getLogger(__name__)


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
        names = [field.name for field in dataclasses.fields(Step)][1:]
        return {
            name: Step(steps[0].from_s, *(sum(getattr(step, figure) for step in steps) for figure in names))
            for name, steps in spans.items()
            if any(step.read_bytes or step.unknown_reads for step in steps)
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
        self._kept = {day: rows for day, rows in self._kept.items() if day in by_day}
        counts = pa.concat_tables(by_day.values())
        mine = sums_by(counts.filter(pc.equal(counts["cache"], cache)), "hour")
        first_hour = now_s // HOUR_S - HOURS + 1
        return History(_steps_of(mine, first_hour, HOURS, 1), _steps_of(mine, first_s // HOUR_S, DAYS, 24))

    def _counts(self, day: str) -> pa.Table:
        records = self._tables.head(ACCESSES).select(since=day, until=day)
        counts = self._kept.get(day)
        if counts is None or counts[0] != records:
            counts = self._kept[day] = records, counts_of_day(self._tables, day)
        return counts[1]


def _steps_of(counts: pa.Table, first_hour: int, n_steps: int, hours: int) -> list[Step]:
    at = (counts["hour"].to_numpy() - first_hour) // hours
    is_in = (at >= 0) & (at < n_steps)
    names = ("read_bytes", "hit_bytes", "missed_bytes", "unknown_reads")
    sums = (np.bincount(at[is_in], counts[name].to_numpy()[is_in], n_steps).tolist() for name in names)
    starts = (first_hour + hours * np.arange(n_steps)) * HOUR_S
    rows = zip(starts.tolist(), *sums, strict=True)
    return [Step(*map(int, row)) for row in rows]


@dataclasses.dataclass(frozen=True)
class CacheState:
    """One cache. `found`: its status and its alarms; `silent`: how long its steward has reported nothing."""

    settings: CacheSettings
    heard: LastHeartbeat | None
    found: tuple[CacheStatus, Sequence[Alarm]] | Unknown
    steward: StewardFigures | Unknown | None
    silent: str | None
    days: Sequence[Row] | Unknown
    history: History | Unknown

    @property
    def used(self) -> tuple[int | None, str]:
        """Bytes on disk, None: not known; by its steward, which looks each minute, else by the inventory."""
        if isinstance(self.steward, StewardFigures) and not self.silent:
            return self.steward.used_bytes, "steward"
        return None if isinstance(self.found, Unknown) else self.found[0].held_bytes, "inventory"


@dataclasses.dataclass(frozen=True)
class State:
    """What the page shows. `models`: by region; None: nothing was decided yet. `generated`: see its store."""

    region_name: str
    policy: str
    region: Status | Unknown
    caches: Sequence[CacheState]
    models: Mapping[str, Serving | Unknown | None]
    generated: str | Unknown | None = None

    @property
    def alarms(self) -> list[Alarm]:
        of_region = [] if isinstance(self.region, Unknown) else [*self.region.alarms]
        statuses = (cache.found for cache in self.caches)
        return of_region + [
            alarm for status in statuses if not isinstance(status, Unknown) for alarm in status[1]
        ]

    @property
    def unknown(self) -> dict[str, Unknown]:
        parts: dict[str, object] = {f"region {self.region_name}": self.region}
        parts |= {f"cache {cache.settings.name}": cache.found for cache in self.caches}
        return {name: part for name, part in parts.items() if isinstance(part, Unknown)}


@dataclasses.dataclass(frozen=True)
class Look:
    """A look at a region, its caches and its models at `now_s`; `sources` and `histories` outlast it."""

    settings: Settings
    tables: Tables
    sources: Sources
    histories: Histories
    now_s: int

    def state(self, heard: Mapping[str, LastHeartbeat]) -> State:
        """The state; `heard`: the last heartbeat of each cache."""
        settings, tables, self.sources.now_s = self.settings, self.tables, self.now_s
        known = self.sources.known
        return State(
            settings.region.name,
            settings.steward.policy,
            known("region", lambda: status.of_region(_there(tables), settings, now_s=self.now_s)),
            [self._cache(name, heard.get(name)) for name in sorted(settings.caches)],
            self._models(),
            known("tables", lambda: generated.warning(tables)),
        )

    def _cache(self, name: str, heard: LastHeartbeat | None) -> CacheState:
        settings, tables, now_s, known = self.settings, self.tables, self.now_s, self.sources.known

        def status_and_alarms() -> tuple[CacheStatus, Sequence[Alarm]]:
            with contextlib.closing(Journal(settings.push.journal)) as journal:
                cache = status.of_cache(_there(tables), journal, settings, name, now_s=now_s)
            return cache, tuple(cache_alarms(cache, settings, now_s=now_s))

        since = day_label(now_s - (DAYS - 1) * DAY_S)
        steward = known(f"steward {name}", lambda: read(settings.steward.figures(name)))
        return CacheState(
            settings.caches[name],
            heard,
            known(f"cache {name}", status_and_alarms),
            steward,
            silence(steward, now_s=now_s) if isinstance(steward, StewardFigures) else None,
            known(f"days {name}", lambda: steward_days.by_day(tables, cache=name, since=since)[::-1]),
            known(f"history {name}", lambda: self.histories.of(name, now_s=now_s)),
        )

    def _models(self) -> Mapping[str, Serving | Unknown | None]:
        """The models of the region, and of the others that were decided about in these tables."""
        known = self.sources.known
        others = known("regions", lambda: {key[2] for key in self.tables.head(PROMOTIONS).partitions})
        regions = {self.settings.region.name} | (set() if isinstance(others, Unknown) else others)

        def of(region: str) -> Serving | None:
            return serving(_there(self.tables), region=region)

        return {name: known(f"models {name}", functools.partial(of, name)) for name in sorted(regions)}


def _there(tables: Tables) -> Tables:
    """`tables`, if there are any. Raises StaleInputError."""
    if not tables.names():
        raise StaleInputError(
            "nothing was pulled yet into the tables of this service; if a pull has ended, start the service "
            "with the same settings ([tables] root)"
        )
    return tables


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A source that cannot be used now; `since_s`: when it was last, or the first question."""

    since_s: float
    why: str


class Sources:
    """Remembers when each source could last be used; `now_s`: the time of the questions."""

    def __init__(self, began_s: float) -> None:
        self._began_s = self.now_s = began_s
        self._known_s: dict[str, float] = {}
        self._logged: dict[str, str] = {}

    def known(self, name: str, read: Callable[[], T]) -> T | Unknown:
        """The result of `read`, or Unknown with the reason why the source `name` cannot be read.

        An unexpected error is logged with its traceback, once until the source answers again or fails
        differently: the page names only its type.
        """
        try:
            result = read()
        except CachecastError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001  a damaged file may fail anywhere: the rest is shown all the same
            why = f"it cannot be read ({type(error).__name__}); the service's log says more"
            if self._logged.get(name) != why:
                self._logged[name] = why
                _log.exception("operator's page: the source %r cannot be read", name)
        else:
            self._logged.pop(name, None)
            self._known_s[name] = self.now_s
            return result
        return Unknown(self._known_s.get(name, self._began_s), why)
