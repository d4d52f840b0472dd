"""The TOML file that describes several caches; docs/xcache-mode.md explains its keys."""

from __future__ import annotations

from pathlib import Path

import pydantic

from features.common.faults import validated, with_defaults
from jobs.settings.layers import read_file
from jobs.settings.values import Bytes, Name, Seconds, Section, Watermarks
from replay.config import CacheConfig
from replay.federation.fleet import Federation

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
    """The whole file, `[defaults]` already merged into each of `[[caches]]`."""

    caches: tuple[FleetCache, ...] = pydantic.Field(min_length=1)

    @pydantic.field_validator("caches")
    @classmethod
    def _can_be_replayed(cls, caches: tuple[FleetCache, ...]) -> tuple[FleetCache, ...]:
        if (n := sum(cache.count for cache in caches)) > MOST_CACHES:
            raise ValueError(f"{n} caches in all; at most {MOST_CACHES} can be replayed")
        if len({name for cache in caches for name in cache.names}) < n:
            raise ValueError("two caches have the same name; rename one")
        return caches


def load_fleet(path: Path) -> Federation:
    """The caches that the file describes, by name. Raises ConfigError."""
    values = with_defaults(read_file(path), "defaults", "caches")
    fleet = validated(Fleet, values, where=str(path), see="docs/xcache-mode.md")
    return Federation({name: cache.config for cache in fleet.caches for name in cache.names})
