"""The accesses to replay: those of a trace, or of days in the site's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from features.common.errors import InputError
from features.common.times import day_label
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.traces import TraceFile, from_tables
from replay.read import LoadedTrace


def loaded(
    settings: Settings,
    trace: TraceFile | None,
    *,
    first_day_s: int | None,
    last_day_s: int | None,
    only: Mapping[str, str],
    keep: Sequence[str] = (),
) -> LoadedTrace:
    """The accesses of `trace`; or those of days in the tables, after the history that warms the caches.

    `keep`: columns to keep beside the accesses. Raises InputError, StaleInputError.
    """
    if trace is not None:
        return trace.load(keep=keep)
    first_s, last_s = days_of_tables(first_day_s, last_day_s)
    return from_tables(
        Tables(settings.tables.root),
        since_s=first_s,
        until_s=last_s,
        demand_sources=settings.sources.demand,
        only=only,
        history_s=settings.features.spec.history_s,
        keep=keep,
    )


def days_of_tables(first_day_s: int | None, last_day_s: int | None) -> tuple[int, int]:
    """Both days, which a replay of the tables needs. Raises InputError without both, in their order."""
    if first_day_s is None or last_day_s is None:
        raise InputError("give --trace, or the days of the tables to replay with --from and --to")
    if last_day_s < first_day_s:
        raise InputError(
            f"--to {day_label(last_day_s)} is before --from {day_label(first_day_s)}; exchange them"
        )
    return first_day_s, last_day_s
