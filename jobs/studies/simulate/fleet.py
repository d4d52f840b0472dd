"""Replay of several caches from a TOML file: side by side, each plain LRU by its own rules, or in levels.

docs/xcache-mode.md explains the keys of the file.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from features.common.arrays import FloatArray, IntArray
from features.common.faults import validated, with_defaults
from features.common.units import format_bytes
from jobs.ground.settings.layers import read_file
from jobs.ground.settings.tree import Settings
from jobs.ground.settings.values import Bytes, Name, Seconds, Section, Watermarks
from jobs.ground.text import count, fleet_columns, percent, select, text
from jobs.pages.write import Page, write_page
from jobs.studies.simulate.accesses import Accesses, ReplayAnswer
from replay.config import CacheConfig
from replay.federation import By, Level, Served, simulate_federation, simulate_levels
from replay.read import LoadedTrace
from replay.read.values import codes_of
from replay.result import Result

MOST_CACHES = 10_000
TOTAL = "all"  # the name of the row for all caches together
SSD, HDD = "ssd", "hdd"  # the tiers, by their names in [benefit] read_rates
READERS = ("user", "task")  # columns that say who reads: the first one that a trace has counts
ORIGIN = "origin"  # the row of what no level served
_FLEET_NOTE = "Each file belongs to one cache, by the hash of its name. Every cache is an LRU."
_LEVELS_NOTE = (
    "What one level misses, the next one is asked for. A hit that is under way waits for bytes that another "
    "read has asked for."
)
_OF_CACHES = (
    *("policy", "capacity_bytes", "requests", "hits", "hit_ratio", "byte_hit_ratio", "object_miss_ratio"),
    *("byte_miss_ratio", "bytes_requested", "wan_bytes", "bypassed_bytes", "ssd_hit_bytes", "read_wait_s"),
    *("peak_usage_bytes", "peak_hour_wan_bytes", "seconds"),
)


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
        return [self.name] if self.count == 1 else [f"{self.name}-{i + 1}" for i in range(self.count)]

    @property
    def config(self) -> CacheConfig:
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


def run(settings: Settings, accesses: Accesses, *, caches: Path) -> ReplayAnswer:
    """Replay `accesses` through a TOML file's caches. Raises ConfigError, InputError, StaleInputError."""
    levels = load_levels(caches)
    fleet = load_fleet(caches) if levels is None else {}
    loaded, from_s = accesses.load(settings, keep=READERS), accesses.first_day_s
    if levels is not None:
        return replay_levels(loaded, levels, count_from_s=from_s)
    return replay_fleet(loaded, fleet, count_from_s=from_s, read_rates=settings.benefit.read_rates)


def replay_fleet(
    loaded: LoadedTrace,
    caches: Mapping[str, CacheConfig],
    *,
    count_from_s: int | None,
    read_rates: Mapping[str, int],
) -> ReplayAnswer:
    """A row for all caches together, then one for each cache that had an access.

    `read_rates`: bytes per second at which one job reads hits from `SSD` and from `HDD`.
    """
    shares = simulate_federation(loaded.trace, caches, count_from_s=count_from_s)
    results = {TOTAL: shares.total} | shares.caches
    return ReplayAnswer([_row(name, result, read_rates) for name, result in results.items()], loaded.notes)


def _row(cache: str, result: Result, read_rates: Mapping[str, int]) -> dict[str, object]:
    hdd_hit_bytes = result.hit_bytes - result.ssd_hit_bytes
    wait_s = result.ssd_hit_bytes / read_rates[SSD] + hdd_hit_bytes / read_rates[HDD]
    row: dict[str, object] = {"cache": cache}
    return row | {name: wait_s if name == "read_wait_s" else getattr(result, name) for name in _OF_CACHES}


class LevelSettings(Section):
    """One `[[levels]]` entry; rates are per second."""

    name: Name
    count: int = pydantic.Field(default=1, gt=0, le=10_000)
    capacity: Bytes
    policy: str = "lru"
    by: By = "name"
    link: Bytes | None = None
    disk: Bytes | None = None
    latency_ms: float = pydantic.Field(default=0.0, ge=0, le=60_000)

    @property
    def level(self) -> Level:
        return Level(
            self.name,
            self.capacity,
            self.count,
            self.policy,
            self.by,
            link_bytes_s=self.link or math.inf,
            disk_bytes_s=self.disk or math.inf,
            latency_s=self.latency_ms / 1000,
        )


class _Levels(Section):
    levels: tuple[LevelSettings, ...] = pydantic.Field(min_length=1, max_length=8)

    @pydantic.field_validator("levels")
    @classmethod
    def _names_differ(cls, levels: tuple[LevelSettings, ...]) -> tuple[LevelSettings, ...]:
        if len({level.name for level in levels} - {ORIGIN, TOTAL}) < len(levels):
            raise ValueError(f"the levels need names of their own, and none may be {ORIGIN!r} or {TOTAL!r}")
        return levels


def load_levels(path: Path) -> list[Level] | None:
    """The levels that the file describes, nearest to jobs first; None: it has caches. Raises ConfigError."""
    values = read_file(path)
    if "levels" not in values:
        return None
    content = validated(_Levels, values, where=str(path), see="docs/xcache-mode.md")
    return [level.level for level in content.levels]


def replay_levels(loaded: LoadedTrace, levels: Sequence[Level], *, count_from_s: int | None) -> ReplayAnswer:
    """A row per level, then one for the origins and one for all reads. Raises ConfigError, InputError."""
    rows = simulate_levels(loaded.trace, levels, readers=_readers(loaded), count_from_s=count_from_s)
    cached, top = rows[:-1], rows[-2]
    sizes = [row.level.n_caches * row.level.capacity_bytes for row in cached if row.level is not None]
    whole = Served(
        requests=rows[0].requests,
        hits=sum(row.hits for row in cached),
        under_way=sum(row.under_way for row in cached),
        asked_bytes=rows[0].asked_bytes,
        hit_bytes=sum(row.hit_bytes for row in cached),
        wait_s=np.concatenate([row.wait_s for row in rows]),
        in_bytes=top.in_bytes,
        peak_hour_share=top.peak_hour_share,
    )
    answers = [*map(_level_row, rows), _level_row(whole) | {"cache": TOTAL, "capacity_bytes": sum(sizes)}]
    return ReplayAnswer(answers, loaded.notes, _verdict(answers))


def _level_row(served: Served) -> dict[str, Any]:
    level = served.level
    return {
        "cache": ORIGIN if level is None else level.name,
        "caches": None if level is None else level.n_caches,
        "capacity_bytes": None if level is None else level.capacity_bytes,
        "policy": None if level is None else level.policy,
        "requests": served.requests,
        "hits": served.hits,
        "under_way": served.under_way,
        "bytes_requested": served.asked_bytes,
        "hit_bytes": served.hit_bytes,
        "byte_hit_ratio": served.hit_bytes / max(1, served.asked_bytes),
        "in_bytes": served.in_bytes,
        "peak_hour_share": served.peak_hour_share,
        **_waits(served.wait_s),
    }


def _waits(wait_s: FloatArray) -> dict[str, Any]:
    if not wait_s.size:
        return {"mean_wait_s": None, "p95_wait_s": None, "wait_hours": 0.0}
    p95 = float(np.quantile(wait_s, 0.95))
    return {"mean_wait_s": float(wait_s.mean()), "p95_wait_s": p95, "wait_hours": float(wait_s.sum()) / 3600}


def _readers(loaded: LoadedTrace) -> IntArray | None:
    names = [name for name in READERS if name in loaded.details.column_names]
    return codes_of(loaded.details[names[0]]).code.astype(np.int64) if names else None


def _verdict(rows: Sequence[dict[str, Any]]) -> str:
    *levels, _, total = rows
    shares = [
        f"{row['cache']} {percent(row['hit_bytes'] / max(1, total['bytes_requested']))}" for row in levels
    ]
    fullest = max(levels, key=lambda row: row["peak_hour_share"])
    share = fullest["peak_hour_share"]
    narrow = (
        f" In its busiest hour a link into {fullest['cache']} is asked for {share:.1f} times what it carries."
    )
    return (
        f"Of the bytes read, caches served {', '.join(shares)}; {format_bytes(total['in_bytes'])} came over "
        f"the WAN. A read waits {text('wait_s', total['mean_wait_s'])} in the mean, one in twenty longer "
        f"than {text('wait_s', total['p95_wait_s'])}; {count(total['wait_hours'])} hours in all."
        f"{narrow if share > 1 else ''}"
    )


def export_fleet(answer: ReplayAnswer, out: Path | None, *, title: str) -> None:
    """Write the replay of several caches to `out`, if given, in the format of its suffix."""
    rows = [select(row, fleet_columns(answer.rows)) for row in answer.rows]
    answers, note = ([answer.verdict], _LEVELS_NOTE) if answer.verdict else ([], _FLEET_NOTE)
    page = Page(title, answer.notes, rows, answers, heading="By cache", note=note, capacity="")
    write_page(out, answer.rows, page, lambda plots: plots.hit_ratio_by_cache(answer.rows))
