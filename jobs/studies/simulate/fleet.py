"""Replay of several caches from a TOML file: side by side, each plain LRU by its own rules, or in levels.

docs/xcache-mode.md explains the keys of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pydantic

from features.common.faults import validated, with_defaults
from jobs.ground.settings.layers import read_file
from jobs.ground.settings.tree import Settings
from jobs.ground.settings.values import Bytes, Name, Seconds, Section, Watermarks
from jobs.loop.traces import TraceFile
from jobs.studies.simulate.accesses import loaded
from jobs.studies.simulate.answer import ReplayAnswer
from jobs.studies.simulate.levels import READERS, load_levels, replay_levels
from replay.config import CacheConfig
from replay.federation.fleet import simulate_federation
from replay.read import LoadedTrace
from replay.result import Result

MOST_CACHES = 10_000


class FleetCache(Section):
    """One `[[caches]]` entry: `count` caches with the same settings."""

    name: Name
    count: int = pydantic.Field(default=1, gt=0, le=1000)
    capacity: Bytes
    watermarks: Watermarks = (0.90, 0.95)
    purge_interval: Seconds = 300
    cold_age: Seconds | None = None
    cold_every: int = pydantic.Field(default=1, gt=0, le=1_000_000)
    block_size: Bytes | None = None
    ssd: Bytes | None = None
    never_cache: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The caches' names; they are numbered if there are several."""
        return [self.name] if self.count == 1 else [f"{self.name}-{i + 1}" for i in range(self.count)]

    @property
    def config(self) -> CacheConfig:
        """The configuration of each of these caches."""
        low, high = self.watermarks
        return CacheConfig(
            self.capacity,
            low,
            high,
            self.purge_interval,
            cold_age_s=self.cold_age,
            cold_every=self.cold_every,
            block_bytes=self.block_size,
            ssd_bytes=self.ssd or 0,
            never_cache=self.never_cache,
        )


class Fleet(Section):
    """The content of the file; `[defaults]` are merged into each of `[[caches]]` before."""

    caches: tuple[FleetCache, ...] = pydantic.Field(min_length=1)

    @pydantic.field_validator("caches")
    @classmethod
    def _can_be_replayed(cls, caches: tuple[FleetCache, ...]) -> tuple[FleetCache, ...]:
        if (n := sum(cache.count for cache in caches)) > MOST_CACHES:
            raise ValueError(f"{n} caches in all; at most {MOST_CACHES} can be replayed")
        if len({name for cache in caches for name in cache.names}) < n:
            raise ValueError("two caches have the same name; rename one")
        return caches


def load_fleet(path: Path) -> dict[str, CacheConfig]:
    """The caches that the file describes, by name. Raises ConfigError."""
    values = with_defaults(read_file(path), "defaults", "caches")
    fleet = validated(Fleet, values, where=str(path), see="docs/xcache-mode.md")
    return {name: cache.config for cache in fleet.caches for name in cache.names}


TOTAL = "all"
"""The name of the row for all caches together."""
SSD, HDD = "ssd", "hdd"
"""The tiers, by their names in [benefit] read_rates."""


def run(
    settings: Settings,
    trace: TraceFile | None,
    *,
    caches: Path,
    first_day_s: int | None,
    last_day_s: int | None,
    only: Mapping[str, str],
) -> ReplayAnswer:
    """Replay the caches of the TOML file `caches`, on `trace` or on days of the tables.

    Raises ConfigError, InputError, StaleInputError.
    """
    levels = load_levels(caches)
    fleet = load_fleet(caches) if levels is None else None
    accesses = loaded(
        settings, trace, first_day_s=first_day_s, last_day_s=last_day_s, only=only, keep=READERS
    )
    if fleet is None:
        return replay_levels(accesses, levels or (), count_from_s=first_day_s)
    rates = settings.benefit.read_rates
    return replay_fleet(accesses, fleet, count_from_s=first_day_s, read_rates=rates)


def replay_fleet(
    accesses: LoadedTrace,
    caches: Mapping[str, CacheConfig],
    *,
    count_from_s: int | None,
    read_rates: Mapping[str, int],
) -> ReplayAnswer:
    """A row for all caches together, then one for each cache that had an access.

    `read_rates`: bytes per second at which one job reads hits from `SSD` and from `HDD`.
    """
    shares = simulate_federation(accesses.trace, caches, count_from_s=count_from_s)
    results = {TOTAL: shares.total} | shares.caches
    return ReplayAnswer([_row(name, result, read_rates) for name, result in results.items()], accesses.notes)


def _row(cache: str, result: Result, read_rates: Mapping[str, int]) -> dict[str, object]:
    hdd_hit_bytes = result.hit_bytes - result.ssd_hit_bytes
    return {
        "cache": cache,
        "policy": result.policy,
        "capacity_bytes": result.capacity_bytes,
        "requests": result.requests,
        "hits": result.hits,
        "hit_ratio": result.hit_ratio,
        "byte_hit_ratio": result.byte_hit_ratio,
        "object_miss_ratio": result.object_miss_ratio,
        "byte_miss_ratio": result.byte_miss_ratio,
        "bytes_requested": result.bytes_requested,
        "wan_bytes": result.wan_bytes,
        "bypassed_bytes": result.bypassed_bytes,
        "ssd_hit_bytes": result.ssd_hit_bytes,
        "read_wait_s": result.ssd_hit_bytes / read_rates[SSD] + hdd_hit_bytes / read_rates[HDD],
        "peak_usage_bytes": result.peak_usage_bytes,
        "peak_hour_wan_bytes": result.peak_hour_wan_bytes,
        "seconds": result.seconds,
    }
