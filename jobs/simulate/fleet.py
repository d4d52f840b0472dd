"""Replay of several caches, as a TOML file describes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from features.errors import ConfigError
from jobs.settings.layers import read_file
from jobs.settings.tree import Settings
from jobs.settings.values import Bytes, Name, Seconds, Section, Share
from jobs.simulate.accesses import loaded
from jobs.simulate.replay_trace import ReplayAnswer
from jobs.store.traces import TraceFile
from replay.config import CacheConfig
from replay.federation import Federation, simulate_federation
from replay.read import LoadedTrace
from replay.result import Result

TOTAL = "all"
SSD, HDD = "ssd", "hdd"
"""The tiers, as [benefit] read_rates names them."""
MOST_CACHES = 10_000


class FleetCache(Section):
    """One kind of cache; the keys are explained in docs/replay.md."""

    name: Name
    count: int = pydantic.Field(default=1, gt=0, le=1000)
    capacity: Bytes
    watermarks: tuple[Share, Share] = (0.90, 0.95)
    purge_interval: Seconds = 300
    cold_age: Seconds | None = None
    cold_every: int = pydantic.Field(default=1, gt=0, le=1_000_000)
    block_size: Bytes | None = None
    ssd: Bytes | None = None
    never_cache: tuple[str, ...] = ()
    wan_per_s: Bytes | None = None

    @property
    def names(self) -> list[str]:
        """The caches' names: numbered if there are several."""
        return [self.name] if self.count == 1 else [f"{self.name}-{i + 1}" for i in range(self.count)]

    @property
    def config(self) -> CacheConfig:
        """The same as the replay knows it."""
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
            wan_bytes_per_s=self.wan_per_s,
        )


class Fleet(Section):
    """Caches that share the files and a link."""

    caches: tuple[FleetCache, ...] = pydantic.Field(min_length=1)
    wan_per_s: Bytes | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, values: dict[str, Any]) -> dict[str, Any]:
        defaults, caches = values.get("defaults", {}), values.get("caches")
        if not (isinstance(defaults, dict) and isinstance(caches, list)):
            return values
        rest = {key: value for key, value in values.items() if key != "defaults"}
        return rest | {"caches": [defaults | one if isinstance(one, dict) else one for one in caches]}

    @pydantic.field_validator("caches")
    @classmethod
    def _not_too_many(cls, caches: tuple[FleetCache, ...]) -> tuple[FleetCache, ...]:
        if (n := sum(cache.count for cache in caches)) > MOST_CACHES:
            raise ValueError(f"{n} caches in all; at most {MOST_CACHES} can be replayed")
        return caches

    @property
    def federation(self) -> Federation:
        """The same as the replay knows it. Raises ValueError for a name given twice."""
        caches = {name: cache.config for cache in self.caches for name in cache.names}
        if len(caches) < sum(cache.count for cache in self.caches):
            raise ValueError("two caches have the same name")
        return Federation(caches, self.wan_per_s)


def load(path: Path) -> Federation:
    """The caches of a TOML file. Raises ConfigError."""
    values = read_file(path)
    try:
        return Fleet.model_validate(values).federation
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {key}", f"{first['msg']}; docs/replay.md lists the keys") from None
    except ValueError as error:
        raise ConfigError(f"{path}: caches", f"{error}; rename one") from None


def run(
    settings: Settings,
    trace: TraceFile | None,
    *,
    caches: Path,
    first_day_s: int | None,
    last_day_s: int | None,
    site: str | None,
) -> ReplayAnswer:
    """Replay the caches of a TOML file side by side, on `trace` or on days of the tables."""
    federation = load(caches)
    accesses = loaded(settings, trace, first_day_s=first_day_s, last_day_s=last_day_s, site=site)
    rates = settings.benefit.read_rates
    return replay_fleet(accesses, federation, count_from_s=first_day_s, read_rates=rates)


def replay_fleet(
    loaded: LoadedTrace, federation: Federation, *, count_from_s: int | None, read_rates: Mapping[str, int]
) -> ReplayAnswer:
    """A row per cache that was asked at all, and one for all together; LRU by each cache's own rules.

    `read_rates`: bytes a second at which one job reads hits, of `SSD` and `HDD`.
    """
    shares = simulate_federation(loaded.trace, federation, count_from_s=count_from_s)
    named = {TOTAL: shares.total} | shares.caches
    return ReplayAnswer([_row(name, result, read_rates) for name, result in named.items()], loaded.notes)


def _row(cache: str, result: Result, read_rates: Mapping[str, int]) -> dict[str, object]:
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
        "read_wait_s": result.ssd_hit_bytes / read_rates[SSD]
        + (result.hit_bytes - result.ssd_hit_bytes) / read_rates[HDD],
        "peak_usage_bytes": result.peak_usage_bytes,
        "peak_hour_wan_bytes": result.peak_hour_wan_bytes,
        "seconds": result.seconds,
    }
