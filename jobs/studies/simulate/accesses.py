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
    """The accesses of `trace`; None: those of both days and all between in the tables.

    With a trace, what lies before `first_day_s` warms the caches. `only`: values by the role of their column.
    """

    trace: TraceFile | None
    first_day_s: int | None
    last_day_s: int | None
    only: Mapping[str, str] = EVERYTHING

    def load(self, settings: Settings, *, keep: Sequence[str] = ()) -> LoadedTrace:
        """The accesses, with those before that warm the caches. Raises InputError, StaleInputError.

        `keep`: columns to keep beside the accesses.
        """
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
    def what(self) -> str:
        """The trace's name, or whose the reads are, with the site or activity whose accesses alone count."""
        return self.trace.what if self.trace else ", ".join(("the site's reads", *self.only.values()))

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
    """A row per capacity and policy, and notes on rows of the trace that were changed or dropped.

    `verdict`: what rows of several caches show, in sentences; `capacity`: the column of the capacities as
    they were asked for.
    """

    rows: list[dict[str, object]]
    notes: tuple[str, ...]
    verdict: str = ""
    capacity: str = "capacity_fraction"
