"""Replay of caches in levels (node, site, region) from a TOML file: what each serves, and how long jobs wait.

docs/xcache-mode.md explains the keys of the file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from features.common.arrays import FloatArray, IntArray
from features.common.faults import validated
from features.common.units import format_bytes
from jobs.ground.settings.layers import read_file
from jobs.ground.settings.values import Bytes, Name, Section
from jobs.ground.text import count, percent, text
from jobs.studies.simulate.answer import ReplayAnswer
from replay.federation.levels import By, Level, Served, simulate_levels
from replay.read import LoadedTrace
from replay.read.values import codes_of

READERS = ("user", "task")
"""Columns that say who reads: the first one that a trace has counts."""


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
        """The level as the replay takes it."""
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


ORIGIN, TOTAL = "origin", "all"
"""The rows of what no level served, and of all reads."""


def load_levels(path: Path) -> list[Level] | None:
    """The levels that the file describes, the one nearest to the jobs first; None: it describes caches.

    Raises ConfigError.
    """
    values = read_file(path)
    if "levels" not in values:
        return None
    found = validated(_Levels, values, where=str(path), see="docs/xcache-mode.md")
    return [one.level for one in found.levels]


def replay_levels(
    accesses: LoadedTrace, levels: Sequence[Level], *, count_from_s: int | None
) -> ReplayAnswer:
    """A row per level, then one for the origins and one for all reads. Raises ConfigError, InputError."""
    rows = simulate_levels(accesses.trace, levels, readers=_readers(accesses), count_from_s=count_from_s)
    answers = [*map(_row, rows), _total(rows)]
    return ReplayAnswer(answers, accesses.notes, _verdict(answers))


def _row(served: Served) -> dict[str, Any]:
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


def _total(rows: Sequence[Served]) -> dict[str, Any]:
    """All reads; its `in_bytes` are those over the WAN, into the last level."""
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
    return _row(whole) | {"cache": TOTAL, "capacity_bytes": sum(sizes)}


def _waits(wait_s: FloatArray) -> dict[str, Any]:
    if not wait_s.size:
        return {"mean_wait_s": None, "p95_wait_s": None, "wait_hours": 0.0}
    p95 = float(np.quantile(wait_s, 0.95))
    return {"mean_wait_s": float(wait_s.mean()), "p95_wait_s": p95, "wait_hours": float(wait_s.sum()) / 3600}


def _readers(accesses: LoadedTrace) -> IntArray | None:
    names = [name for name in READERS if name in accesses.details.column_names]
    return codes_of(accesses.details[names[0]]).code.astype(np.int64) if names else None


def _verdict(rows: Sequence[dict[str, Any]]) -> str:
    """What a person wants to know first."""
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
