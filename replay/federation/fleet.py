"""Several XCaches, each plain LRU, that hold no file twice."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.errors import ConfigError
from features.results import LRU
from replay.config import CacheConfig
from replay.engine import Run
from replay.federation.ranges import layout_of
from replay.result import NO_FILL, Fill, Hourly, Result
from replay.trace import Trace, Window, window


@dataclasses.dataclass(frozen=True, eq=False)
class Shares:
    """The results of a federation: in total, and of each cache that had an access."""

    total: Result
    caches: dict[str, Result]


def simulate_federation(
    trace: Trace, caches: Mapping[str, CacheConfig], *, count_from_s: int | None = None
) -> Shares:
    """Replay `trace` through several caches, by name; each file belongs to one (`ranges.layout_of`).

    Accesses before `count_from_s` only warm the caches (None: all are counted). `peak_usage_bytes` of the
    total is the sum of the caches' peaks. Raises ConfigError, InputError.
    """
    if not caches:
        raise ConfigError("caches", "is empty; name at least one cache")
    started = time.perf_counter()
    counted = window(trace, count_from_s)
    runs = {
        name: Run(
            part,
            caches[name],
            Window(counted.count_from_s, part.first_at(counted.count_from_s)),
            None,
            elsewhere=elsewhere,
        )
        for name, part, elsewhere in _parts(trace, caches)
    }
    for run in runs.values():
        run.until(int(trace.time_s[-1]) + 1)
    seconds = time.perf_counter() - started
    results = {name: run.result(LRU, seconds) for name, run in runs.items()}
    return Shares(_total(list(results.values()), seconds, caches), results)


def _parts(trace: Trace, caches: Mapping[str, CacheConfig]) -> list[tuple[str, Trace, BoolArray | None]]:
    """Each cache that has an access, its accesses, and the files it never holds; files keep their ids."""
    names = list(caches)
    if len(names) == 1:
        return [(names[0], trace, None)]
    if trace.names is None:
        raise ConfigError("caches", "the trace has no names to distribute files by; give only one cache")
    layout = layout_of({name: config.capacity_bytes for name, config in caches.items()})
    owner = layout.owners_of(trace.names.to_pylist())
    parts: list[tuple[str, Trace, BoolArray | None]] = []
    for name in names:
        elsewhere: BoolArray = owner != name
        asked = ~elsewhere[trace.item]
        if asked.any():
            parts.append((name, _of(trace, asked), elsewhere))
    return parts


def _of(trace: Trace, here: BoolArray) -> Trace:
    return Trace(
        trace.time_s[here],
        trace.item[here],
        trace.size_bytes,
        names=trace.names,
        close_s=None if trace.close_s is None else trace.close_s[here],
        read_bytes=None if trace.read_bytes is None else trace.read_bytes[here],
    )


def _total(results: Sequence[Result], seconds: float, caches: Mapping[str, CacheConfig]) -> Result:
    """Every count is the sum over the caches; hours are joined by time."""
    sums = {
        field.name: sum(getattr(result, field.name) for result in results)
        for field in dataclasses.fields(Result)
        if field.type == "int"
    }
    capacity_bytes = sum(cache.capacity_bytes for cache in caches.values())  # also of those without an access
    return Result(
        **(sums | {"capacity_bytes": capacity_bytes}),
        policy=LRU,
        seconds=seconds,
        hourly=_hours([result.hourly for result in results]),
        fill=_fills([result.fill for result in results]),
    )


def _hours(parts: Sequence[Hourly]) -> Hourly:
    hours = np.unique(np.concatenate([part.time_s for part in parts]))
    columns: dict[str, IntArray] = {}
    for name in ("requests", "hits", "hit_bytes", "wan_bytes", "prefetch_bytes"):
        columns[name] = np.zeros(hours.size, np.int64)
        for part in parts:
            columns[name][np.searchsorted(hours, part.time_s)] += getattr(part, name)
    return Hourly(hours, **columns)


def _fills(parts: Sequence[Fill]) -> Fill:
    """Total usage; in an hour without an access, a cache counts with that of its last one that has any."""
    hours = np.unique(np.concatenate([part.time_s for part in parts]))
    if not hours.size:
        return NO_FILL
    used = np.zeros(hours.size, np.int64)
    for part in parts:
        last = np.searchsorted(part.time_s, hours, side="right") - 1
        known = last >= 0
        used[known] += part.used_bytes[last[known]]
    return Fill(hours, used)
