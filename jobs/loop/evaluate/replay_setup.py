"""What an evaluation replays: copies of the accesses, so that no table of the site changes, and caches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from features.common.errors import InputError
from features.common.times import DAY_S
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.accesses import LAST_S, check_days, copy_file, copy_tables
from jobs.loop.traces import from_tables
from jobs.loop.train.ready import learned_since_s
from models.parallel import map_parallel
from prefetch.plan.value import CYCLES_PER_AGE
from prefetch.plan.value import fitting_cycle_s as within_grid
from replay.access_context import CONTEXT, AccessContext, context_of
from replay.config import CacheConfig
from replay.engine import simulate
from replay.planner import Actions, CacheState
from replay.study.origins import ACTIVITY
from replay.trace import Trace

WATCHED_EVERY_S = 3600
WARM_AGES = 3
"""Plans begin this many eviction ages before counting does."""
TRIED_SHARE = 0.25
"""Share of the past on which weights are tried."""
TRIED_S = 14 * DAY_S
"""Weights are tried on no more days than this, if the caches are warm by then."""

_NOTHING = np.zeros(0, np.int64)
_IDLE = Actions(_NOTHING, _NOTHING, _NOTHING, _NOTHING)


@dataclasses.dataclass(frozen=True)
class Request:
    """The accesses to be evaluated, of a file or the site's tables, from and to days (both inclusive).

    `cycle_s` None: chosen by each capacity's LRU age; `to_s` None: the last day there is.
    """

    accesses: Path | None
    from_s: int
    to_s: int | None
    cycle_s: int | None
    fractions: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Cache:
    """A capacity with a plan every `cycle_s`, from predictions made every `predicted_every_s`.

    `age_s`: at which LRU purges; None: it never did.
    """

    fraction: float
    config: CacheConfig
    cycle_s: int
    predicted_every_s: int
    age_s: int | None


class Days(NamedTuple):
    """Weights of models are tried from `trial_s` on; days from `from_s` on count."""

    trial_s: int
    from_s: int


@dataclasses.dataclass(frozen=True)
class ReplaySetup:
    """The accesses of an evaluation, the tables made from them, and the replayed caches."""

    tables: Tables
    demand: Mapping[str, str]
    trace: Trace
    context: AccessContext
    details: pa.Table
    caches: Sequence[Cache]

    @property
    def last_day_s(self) -> int:
        """First second of the last day with an access."""
        return int(self.trace.time_s[-1]) // DAY_S * DAY_S

    def n_read(self, *, before_s: int) -> int:
        """Files that were read before."""
        return np.unique(self.trace.item[: self.trace.first_at(before_s)]).size


def replay_setup(settings: Settings, request: Request, tables: Tables) -> ReplaySetup:
    """The requested accesses, copied into `tables`, and the caches. Raises InputError."""
    until_s = request.to_s or LAST_S
    demand: Mapping[str, str] = {}
    if request.accesses is not None:
        copy_file(request.accesses, tables)
    else:
        demand = settings.sources.demand
        site = Tables.of(settings)
        since_s = learned_since_s(settings.features.spec, settings.training, at_s=request.from_s)
        copy_tables(site, tables, since_s=since_s, until_s=until_s)
    loaded = from_tables(tables, since_s=0, until_s=until_s, demand_sources=demand, keep=(*CONTEXT, ACTIVITY))
    trace = loaded.trace
    check_days(int(trace.time_s[0]), int(trace.time_s[-1]), from_s=request.from_s)
    caches = map_parallel(partial(_cache, settings, trace, request), request.fractions)
    return ReplaySetup(tables, demand, trace, context_of(loaded), loaded.details, caches)


def trial_days(settings: Settings, setup: ReplaySetup, from_s: int) -> Days:
    """When plans begin: the caches are full of their choices when counting begins, not of LRU's.

    That is a quarter of the past before, but not more than `TRIED_S`, or `WARM_AGES` of the longest eviction
    age, but never more than half of the past; never, if the past is shorter than two trainings are apart.
    Weights are tried on these days.
    """
    every_s, past_s = settings.training.every, from_s - int(setup.trace.time_s[0])
    warm_s = max(WARM_AGES * (cache.age_s or 0) for cache in setup.caches)
    tried_s = max(min(TRIED_SHARE * past_s, TRIED_S), warm_s)
    return Days(from_s - int(min(tried_s, past_s / 2)) // every_s * every_s, from_s)


def capacity_bytes(trace: Trace, fraction: float) -> int:
    """A share of the bytes of all files read. Raises InputError if that is no room for any."""
    capacity = int(fraction * trace.footprint_bytes)
    if capacity <= 0:
        raise InputError(f"a capacity of {fraction:%} of the files read has no room for any")
    return capacity


def _cache(settings: Settings, trace: Trace, request: Request, fraction: float) -> Cache:
    low, high = settings.replay.watermarks
    config = CacheConfig(capacity_bytes(trace, fraction), low, high, settings.replay.purge_interval)
    grid_s, cycle_s = settings.features.cycle, request.cycle_s
    age_s = warm_age_s(trace, config, until_s=request.from_s, every_s=WATCHED_EVERY_S)
    if cycle_s is None:
        cycle_s = fitting_cycle_s(age_s, grid_s)
    return Cache(fraction, config, cycle_s, max(grid_s, cycle_s), age_s)


def warm_age_s(trace: Trace, cache: CacheConfig, *, until_s: int, every_s: int) -> int | None:
    """Median age at which LRU purges, in the later half of the time before `until_s`; None: it never did."""
    recorder = _AgeRecorder([])
    past = trace.first_at(until_s)
    if not past:
        return None
    before = Trace(trace.time_s[:past], trace.item[:past], trace.size_bytes)
    begin_s = (int(trace.time_s[0]) + until_s) // 2
    simulate(before, cache, planner=recorder, cycle_s=every_s, plan_from_s=begin_s)
    return int(np.median(recorder.ages_s)) if recorder.ages_s else None


def fitting_cycle_s(age_s: int | None, grid_s: int) -> int:
    """How often to plan for a cache of this LRU age, with predictions on a grid of `grid_s`.

    At most a tenth of the age: the longest multiple of `grid_s` that divides a day, or for shorter ages a
    part of `grid_s` as in production. A day if the age is None (nothing was ever purged).
    """
    most = DAY_S if age_s is None else min(DAY_S, age_s // CYCLES_PER_AGE)
    if most < grid_s or DAY_S % grid_s:
        return within_grid(age_s, grid_s)
    return max(n * grid_s for n in range(1, most // grid_s + 1) if DAY_S % (n * grid_s) == 0)


@dataclasses.dataclass
class _AgeRecorder:
    """A planner that plans nothing, and records the age at which LRU last purged."""

    ages_s: list[int]

    def actions(self, state: CacheState) -> Actions:
        """Record the LRU age; plan nothing."""
        if state.lru_age_s is not None:
            self.ages_s.append(state.lru_age_s)
        return _IDLE
