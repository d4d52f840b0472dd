"""Knobs of the made-up month."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any

from features.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class TierConfig:
    """One data tier. Files per dataset and file sizes are log-normal; shares are of its datasets.

    `production_share` are read once, whole, by production; `dormant_share` never; the rest by analysis,
    in `tasks_per_day` tasks each on a weekday, on average. `read_share`: part of a file a task reads.
    """

    name: str
    n_datasets: int
    files_median: float
    files_sigma: float
    size_bytes_median: float
    size_sigma: float
    mc_share: float
    production_share: float
    dormant_share: float
    tasks_per_day: float
    read_share: float


@dataclasses.dataclass(frozen=True)
class OriginConfig:
    """A site (RSE) that files come from, and its share of the datasets."""

    rse: str
    share: float


@dataclasses.dataclass(frozen=True)
class WorkloadConfig:
    """A region's month; what each knob means stands beside it in conf/workloads/demo.toml."""

    seed: int
    start: dt.datetime
    days: int
    size_scale: float
    min_size_bytes: int
    sites: tuple[str, ...]
    n_users: int
    popularity_sigma: float
    bursty_share: float
    burst_days: float
    new_version_share: float
    partial_share: float
    pass_hours_median: float
    pass_hours_sigma: float
    night_factor: float
    weekend_factor: float
    origins: tuple[OriginConfig, ...]
    tiers: tuple[TierConfig, ...]

    @property
    def start_s(self) -> int:
        """First second of the month, since 1970."""
        return int(self.start.timestamp())

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str = "workload") -> WorkloadConfig:
        """The config in a parsed TOML file called `where`. Raises ConfigError, naming the key."""
        known = dict(values)
        known["sites"] = tuple(known.get("sites", ()))
        known["origins"] = tuple(
            _build(OriginConfig, row, f"{where}: origins[{i}]")
            for i, row in enumerate(known.get("origins", ()))
        )
        known["tiers"] = tuple(
            _build(TierConfig, row, f"{where}: tiers[{i}]") for i, row in enumerate(known.get("tiers", ()))
        )
        config: WorkloadConfig = _build(cls, known, where)
        for key in ("sites", "origins", "tiers"):
            if not getattr(config, key):
                raise ConfigError(f"{where}: {key}", "is empty; give at least one")
        if config.days < 1:
            raise ConfigError(f"{where}: days", f"{config.days} must be 1 or more")
        if config.start.tzinfo is None:
            raise ConfigError(f"{where}: start", "has no time zone; end it with Z")
        return config


def _build(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    names = {field.name for field in dataclasses.fields(kind)}
    unknown, missing = sorted(set(values) - names), sorted(names - set(values))
    if unknown:
        raise ConfigError(where, f"unknown key {', '.join(unknown)}; remove it")
    if missing:
        raise ConfigError(where, f"missing key {', '.join(missing)}; add it")
    return kind(**values)
