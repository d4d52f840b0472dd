"""The TOML file that describes several caches; docs/xcache-mode.md explains its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic

from features.errors import ConfigError
from jobs.settings.faults import first_fault
from jobs.settings.layers import read_file
from jobs.settings.values import Bytes, Name, Seconds, Section, Share
from replay.config import CacheConfig
from replay.federation import Federation

MOST_CACHES = 10_000


class FleetCache(Section):
    """One `[[caches]]` entry: `count` caches with the same settings."""

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
            wan_bytes_per_s=self.wan_per_s,
        )


class Fleet(Section):
    """The whole file, `[defaults]` already merged into each of `[[caches]]`."""

    caches: tuple[FleetCache, ...] = pydantic.Field(min_length=1)
    wan_per_s: Bytes | None = None

    @pydantic.field_validator("caches")
    @classmethod
    def _not_too_many(cls, caches: tuple[FleetCache, ...]) -> tuple[FleetCache, ...]:
        if (n := sum(cache.count for cache in caches)) > MOST_CACHES:
            raise ValueError(f"{n} caches in all; at most {MOST_CACHES} can be replayed")
        return caches

    @property
    def federation(self) -> Federation:
        """The caches by name. Raises ValueError if a name occurs twice."""
        caches = {name: cache.config for cache in self.caches for name in cache.names}
        if len(caches) < sum(cache.count for cache in self.caches):
            raise ValueError("two caches have the same name")
        return Federation(caches, self.wan_per_s)


def load_fleet(path: Path) -> Federation:
    """The caches that the file describes. Raises ConfigError."""
    values = read_file(path)
    try:
        return Fleet.model_validate(_with_defaults(values)).federation
    except pydantic.ValidationError as error:
        fault = first_fault(Fleet, error)
        raise ConfigError(str(path), f"{fault.what}; docs/xcache-mode.md lists the keys") from None
    except ValueError as error:
        raise ConfigError(f"{path}: caches", f"{error}; rename one") from None


def _with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with the table `defaults` merged into each of `caches`; malformed values stay as they are."""
    defaults, caches = values.get("defaults", {}), values.get("caches")
    if not isinstance(defaults, dict) or not isinstance(caches, list):
        return values
    others = {key: value for key, value in values.items() if key != "defaults"}
    return others | {"caches": [defaults | one if isinstance(one, dict) else one for one in caches]}
