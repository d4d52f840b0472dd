"""What the commands about past accesses run, on a trace or on the site's tables: replay, curve, fleet, study.

Like `jobs.steps`: a step finds its values in `Settings`, gives them to its job, and knows nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from features.errors import InputError
from jobs.cli.console import Advance
from jobs.settings.tree import Settings
from jobs.store.tables import Tables

if TYPE_CHECKING:
    from jobs.simulate.curve import CurveAnswer
    from jobs.simulate.replay_trace import ReplayAnswer
    from jobs.simulate.study import StudySummary
    from jobs.store.traces import TraceFile
    from replay.read import LoadedTrace


def replay(
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
) -> ReplayAnswer:
    """Replay `trace`, or without one the days `first_day_s` … `last_day_s` of the tables, as an XCache."""
    from jobs.simulate import replay_trace

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
        return replay_trace.run(trace.load(), caches, count_from_s=first_day_s, on_progress=on_progress)
    from jobs.simulate import site_replay as of_tables

    first_s, last_s = _days(first_day_s, last_day_s)
    return of_tables.run(
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


def fleet(
    settings: Settings,
    trace: TraceFile | None,
    *,
    caches: Path,
    first_day_s: int | None,
    last_day_s: int | None,
    site: str | None,
) -> ReplayAnswer:
    """Replay the caches of a TOML file side by side, on `trace` or on days of the tables."""
    from jobs.simulate import fleet as job

    federation = job.load(caches)
    loaded = _loaded(settings, trace, first_day_s, last_day_s, site)
    return job.run(loaded, federation, count_from_s=first_day_s, read_rates=settings.benefit.read_rates)


def curve(
    settings: Settings,
    trace: TraceFile | None,
    *,
    hit_ratios: Sequence[float],
    byte_hit_ratios: Sequence[float],
    capacities: Sequence[int],
    fractions: Sequence[float],
    first_day_s: int | None,
    last_day_s: int | None,
    site: str | None,
    workers: int | None,
    on_progress: Advance,
) -> CurveAnswer:
    """LRU at every capacity, on `trace`, or without one on days of the tables after their history.

    Of the tables, what doubling brings is told of the configured caches where no capacity is asked for.
    """
    from jobs.simulate.curve import run

    on_progress(0, 1, "reading")
    if trace is None and not (capacities or fractions):
        capacities = _configured(settings, site)
    return run(
        _loaded(settings, trace, first_day_s, last_day_s, site),
        hit_ratios=hit_ratios,
        byte_hit_ratios=byte_hit_ratios,
        capacities=capacities,
        fractions=fractions,
        count_from_s=first_day_s,
        workers=workers,
        on_progress=on_progress,
    )


def study(
    settings: Settings,
    trace: TraceFile,
    *,
    since_s: int | None,
    capacity_bytes: int | None,
    capacity_fraction: float | None,
    watermarks: tuple[float, float] | None,
    out: Path,
    on_progress: Advance,
) -> StudySummary:
    """Write the caching study of a trace, from `since_s` on."""
    from jobs.simulate.study import DETAILS, run

    on_progress(0, 1, "reading")
    return run(
        trace.load(keep=DETAILS, since_s=since_s),
        settings,
        what=trace.path.name if trace.site is None else f"{trace.path.name}, {trace.site}",
        capacity_bytes=capacity_bytes,
        capacity_fraction=capacity_fraction,
        watermarks=watermarks,
        out=out,
        on_progress=on_progress,
    )


def _configured(settings: Settings, site: str | None) -> list[int]:
    """What the caches of `site`, or of the region, hold together; nothing where there is none."""
    total = sum(cache.capacity for cache in settings.caches.values() if site in (None, cache.at_site))
    return [total] if total else []


def _loaded(
    settings: Settings,
    trace: TraceFile | None,
    first_day_s: int | None,
    last_day_s: int | None,
    site: str | None,
) -> LoadedTrace:
    from jobs.store.traces import from_tables

    if trace is not None:
        return trace.load()
    first_s, last_s = _days(first_day_s, last_day_s)
    since_s = first_s - settings.features.spec.history_s
    return from_tables(
        Tables(settings.tables.root),
        since_s=since_s,
        until_s=last_s,
        demand_sources=settings.sources.demand,
        site=site,
    )


def _days(first_day_s: int | None, last_day_s: int | None) -> tuple[int, int]:
    if first_day_s is None or last_day_s is None:
        raise InputError("give --trace, or the days of the tables to replay with --from and --to")
    return first_day_s, last_day_s
