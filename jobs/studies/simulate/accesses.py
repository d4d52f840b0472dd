"""What a study replays, and what a replay answers."""

import dataclasses
from collections.abc import Mapping, Sequence

from features.common.errors import InputError
from features.common.times import day_label
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.traces import TraceFile, from_tables
from replay.read import LoadedTrace
from replay.read.assemble import EVERYTHING


@dataclasses.dataclass(frozen=True)
class Accesses:
    """The accesses of `trace` (before `first_day_s` they warm caches), or of both days in the tables."""

    trace: TraceFile | None
    first_day_s: int | None
    last_day_s: int | None
    only: Mapping[str, str] = EVERYTHING

    def load(self, settings: Settings, *, keep: Sequence[str] = ()) -> LoadedTrace:
        """The accesses, with columns `keep`, and warming ones. Raises InputError, StaleInputError."""
        if self.trace is not None:
            return self.trace.load(keep=keep)
        first_s, last_s = self.days
        return from_tables(
            Tables.of(settings),
            since_s=first_s,
            until_s=last_s,
            demand_sources=settings.sources.demand,
            only=self.only,
            history_s=settings.features.spec.history_s,
            keep=keep,
        )

    @property
    def days(self) -> tuple[int, int]:
        """Both days. Raises InputError unless both are given, in their order."""
        if self.first_day_s is None or self.last_day_s is None:
            raise InputError("give --trace, or the days of the tables to replay with --from and --to")
        if self.last_day_s < self.first_day_s:
            raise InputError(
                f"--to {day_label(self.last_day_s)} is before --from {day_label(self.first_day_s)}; "
                "exchange them"
            )
        return self.first_day_s, self.last_day_s


@dataclasses.dataclass(frozen=True)
class ReplayAnswer:
    """A row per capacity (asked for as column `capacity`) and policy; `verdict`: of several caches."""

    rows: list[dict[str, object]]
    notes: tuple[str, ...]
    verdict: str = ""
    capacity: str = "capacity_fraction"
