"""Step `replay`: policies, the bound and LRU + plan on past accesses, of a trace or of the site's tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobs.progress import Advance
from jobs.settings.tree import Settings
from jobs.simulate import replay_trace, site_replay
from jobs.simulate.accesses import days_of_tables
from jobs.store.tables import Tables
from jobs.store.traces import TraceFile


def run(
    settings: Settings,
    trace: TraceFile | None,
    *,
    policies: Sequence[str],
    capacities: Sequence[int],
    fractions: Sequence[float],
    watermarks: tuple[float, float] | None = None,
    purge_interval_s: int | None = None,
    first_day_s: int | None,
    last_day_s: int | None,
    site: str | None = None,
    scores: Path | None = None,
    with_bound: bool = True,
    workers: int | None = None,
    on_progress: Advance,
) -> replay_trace.ReplayAnswer:
    """Replay `trace`, or without one the days `first_day_s` … `last_day_s` of the tables, as an XCache."""
    caches = replay_trace.Caches(
        policies=policies,
        capacities=capacities,
        fractions=fractions,
        watermarks=watermarks if trace is not None else watermarks or settings.replay.watermarks,
        purge_interval_s=purge_interval_s or settings.replay.purge_interval,
        scores=scores,
        with_bound=with_bound,
        workers=workers,
    )
    if trace is not None:
        on_progress(0, 1, "reading")
        return replay_trace.replay(trace.load(), caches, count_from_s=first_day_s, on_progress=on_progress)
    first_s, last_s = days_of_tables(first_day_s, last_day_s)
    return site_replay.replay(
        Tables(settings.tables.root),
        caches,
        first_day_s=first_s,
        last_day_s=last_s,
        history_s=settings.features.spec.history_s,
        demand_sources=settings.sources.demand,
        site=site,
        region=settings.region.name,
        plan=settings.plan,
        cycle_s=settings.features.cycle,
        on_progress=on_progress,
    )
