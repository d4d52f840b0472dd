"""Several caches: beside each other, each plain LRU and no file twice; or in levels (node, site, region).

In levels a read asks its cache of the first level; a miss asks one cache of the next level, and so on up to
the origin. What comes down is kept by every cache on its way, whole. Each link into a cache, and each cache's
disk, serves one transfer after the other at its rate. A cache passes bytes on as they come, so a read is as
slow as the slowest part of its way, and a file that is still on its way to a cache is no hit yet: its readers
wait for the bytes, which travel once. Not modelled: that a disk also writes, limits within a node, failures.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.errors import ConfigError
from features.common.hashes import mixed
from features.common.jit import kernel
from features.common.times import HOUR_S
from features.results import LRU
from replay.config import CacheConfig
from replay.engine import Run
from replay.policies import POLICIES, canonical
from replay.ranges import layout_of
from replay.result import Fill, Hourly, Result
from replay.trace import ItemArray, Trace, Window, window

NOWHERE = -1
By = Literal["name", "reader", "any"]


@dataclasses.dataclass(frozen=True)
class Level:
    """`n_caches` equal caches of one level. Raises ConfigError.

    `by`: which of them a read asks. `name`: a file belongs to one, as in a federation; `reader`: a reader
    always asks the same one; `any`: jobs run anywhere, so that reads are spread evenly.
    `link_bytes_s`: into each cache from the level above, or from the origins; `disk_bytes_s`: at which each
    cache serves what it holds; `latency_s`: from asking the level above until bytes begin to come.
    """

    name: str
    capacity_bytes: int
    n_caches: int = 1
    policy: str = "lru"
    by: By = "name"
    link_bytes_s: float = math.inf
    disk_bytes_s: float = math.inf
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", canonical(self.policy))
        for key in ("capacity_bytes", "n_caches", "link_bytes_s", "disk_bytes_s"):
            if not getattr(self, key) > 0:
                raise ConfigError(key, f"{getattr(self, key)} must be above 0")
        if not 0 <= self.latency_s < math.inf:
            raise ConfigError("latency_s", f"{self.latency_s} must be 0 or more")


@dataclasses.dataclass(frozen=True, eq=False)
class Served:
    """What one level did for the counted reads; `level` None: what the origins did.

    `requests`: reads that asked it; `hits`: those that it served, of them `under_way` while the file was
    still on its way to it. `asked_bytes`, `hit_bytes`: bytes that these reads wanted; `in_bytes`: what its
    links carried. `peak_hour_share`: the most that was asked of one of its links in an hour, as a share of
    what it can carry. `wait_s`: of the reads that it served, float64[hits], from asking to the last byte.
    """

    requests: int
    hits: int
    under_way: int
    asked_bytes: int
    hit_bytes: int
    wait_s: FloatArray
    level: Level | None = None
    in_bytes: int = 0
    peak_hour_share: float = 0.0


class _Ways(NamedTuple):
    """Per level and access, [levels, n]. `owner`: the cache asked, counted within its level, or NOWHERE.

    `source`: the access that brought the file that a hit reads, else NOWHERE. `served`: int64[n], the level
    that served each access; the number of levels: the origin.
    """

    owner: IntArray
    source: IntArray
    served: IntArray


class _Reads(NamedTuple):
    """The accesses of a trace, and the bytes that each asked for."""

    time_s: IntArray
    item: ItemArray
    size: IntArray
    asked: IntArray


class _Rates(NamedTuple):
    """Per level, float64: seconds per byte of a link and of a disk, and seconds of latency."""

    link: FloatArray
    disk: FloatArray
    latency: FloatArray


def simulate_levels(
    trace: Trace, levels: Sequence[Level], *, readers: IntArray | None = None, count_from_s: int | None = None
) -> list[Served]:
    """Replay `trace` through `levels`, the first one asked first; a row per level, and one for the origins.

    `readers`: int[n], who reads, for levels by reader. Accesses before `count_from_s` only warm the caches.
    Raises ConfigError, InputError.
    """
    counted = window(trace, count_from_s)
    ways = _replayed(trace, levels, readers)
    asked = trace.size_bytes[trace.item] if trace.read_bytes is None else trace.read_bytes
    rates = _Rates(
        np.array([1 / level.link_bytes_s for level in levels]),
        np.array([1 / level.disk_bytes_s for level in levels]),
        np.array([level.latency_s for level in levels]),
    )
    n_caches = max(level.n_caches for level in levels)
    reads = _Reads(trace.time_s, trace.item, trace.size_bytes, asked)
    wait_s, under_way = _delivered(reads, ways, rates, np.zeros((2, len(levels), n_caches)))
    counts = np.arange(trace.n_accesses) >= counted.first
    rows = []
    for at in range(len(levels) + 1):
        reached, here = counts & (ways.served >= at), counts & (ways.served == at)
        row = Served(
            requests=int(reached.sum()),
            hits=int(here.sum()),
            under_way=int(under_way[here].sum()),
            asked_bytes=int(asked[reached].sum()),
            hit_bytes=int(asked[here].sum()),
            wait_s=wait_s[here],
        )
        if at < len(levels):
            passed = reached & ~here
            in_bytes = int(trace.size_bytes[trace.item[passed]].sum())
            peak = _peak(trace, passed, ways.owner[at], levels[at])
            row = dataclasses.replace(row, level=levels[at], in_bytes=in_bytes, peak_hour_share=peak)
        rows.append(row)
    return rows


def _replayed(trace: Trace, levels: Sequence[Level], readers: IntArray | None) -> _Ways:
    """Which level serves each access: what misses one level is what the next one is asked for."""
    n = trace.n_accesses
    owner = np.full((len(levels), n), NOWHERE, np.int64)
    source = np.full((len(levels), n), NOWHERE, np.int64)
    served = np.full(n, len(levels), np.int64)
    left = np.arange(n)
    for at, level in enumerate(levels):
        if not left.size:
            break
        here = _owners(trace, left, level, readers)
        hit = np.zeros(left.size, np.bool_)
        order = np.argsort(here, kind="stable")
        for asks in np.split(order, np.flatnonzero(np.diff(here[order])) + 1):
            part = Trace(trace.time_s[left[asks]], trace.item[left[asks]], trace.size_bytes)
            is_hit = np.zeros(asks.size, np.bool_)
            POLICIES[level.policy](part, level.capacity_bytes, is_hit)
            hit[asks] = is_hit
        owner[at, left] = here
        source[at, left] = _sources(here, trace.item[left], left, hit)
        served[left[hit]] = at
        left = left[~hit]
    return _Ways(owner, source, served)


def _owners(trace: Trace, access: IntArray, level: Level, readers: IntArray | None) -> IntArray:
    if level.n_caches == 1:
        return np.zeros(access.size, np.int64)
    if level.by == "reader" and readers is None:
        raise ConfigError(
            "by", f"level {level.name}: the trace does not say who reads; give the column user= or task="
        )
    if level.by == "name" and trace.names is not None:
        layout = layout_of({f"{number:06}": 1.0 for number in range(level.n_caches)})
        owner: IntArray = layout.owners_of(trace.names.to_pylist()).astype(np.int64)
        return owner[trace.item[access]]
    keys = {"name": trace.item, "reader": readers, "any": np.arange(trace.n_accesses)}[level.by]
    hashed = mixed(np.asarray(keys)[access].astype(np.uint64)) % np.uint64(level.n_caches)
    return hashed.astype(np.int64)


def _sources(owner: IntArray, item: ItemArray, access: IntArray, hit: BoolArray) -> IntArray:
    """For each hit, the latest access that brought the file into its cache; for misses, NOWHERE."""
    order = np.lexsort((access, item, owner))
    brings = ~hit[order]
    latest = np.maximum.accumulate(np.where(brings, np.arange(order.size), 0))
    source = np.full(order.size, NOWHERE, np.int64)
    source[order] = np.where(brings, NOWHERE, access[order][latest])
    return source


def _peak(trace: Trace, passed: BoolArray, owner: IntArray, level: Level) -> float:
    if not passed.any() or math.isinf(level.link_bytes_s):
        return 0.0
    hour = trace.time_s[passed] // HOUR_S
    hour -= hour[0]
    _, slot = np.unique(hour * level.n_caches + owner[passed], return_inverse=True)
    carried = np.bincount(slot, trace.size_bytes[trace.item[passed]])
    return float(carried.max() / (level.link_bytes_s * HOUR_S))


@kernel
def _delivered(reads: _Reads, ways: _Ways, rates: _Rates, free_s: FloatArray) -> tuple[FloatArray, BoolArray]:
    """How long each access waits, and whether its file was on its way to the cache that served it.

    `free_s`: [2, levels, caches], when each link and each disk is free; zeros at the beginning.
    """
    time_s, item, size, asked = reads
    n, n_levels = time_s.size, rates.link.size
    begun, whole = np.zeros((n_levels, n)), np.zeros((n_levels, n))
    wait_s, under_way = np.zeros(n), np.zeros(n, np.bool_)
    for i in range(n):
        at = ways.served[i]
        file = item[i]
        n_bytes = size[file]
        share = asked[i] / n_bytes if n_bytes else 1.0
        now = np.float64(time_s[i])
        # `part`: when the bytes that the job wants have come so far; `all_`: when the file is whole there.
        part = now
        all_ = now
        if at < n_levels:
            source, cache = ways.source[at, i], ways.owner[at, i]
            if whole[at, source] > now:
                under_way[i] = True
                part = max(now, begun[at, source] + share * (whole[at, source] - begun[at, source]))
                all_ = whole[at, source]
            begins = max(now, free_s[1, at, cache])
            n_served = n_bytes if at > 0 else asked[i]
            free_s[1, at, cache] = begins + n_served * rates.disk[at]
            part = max(part, begins + asked[i] * rates.disk[at])
            all_ = max(all_, free_s[1, at, cache])
        for level in range(at - 1, -1, -1):
            cache = ways.owner[level, i]
            begins = max(now, free_s[0, level, cache]) + rates.latency[level]
            free_s[0, level, cache] = begins - rates.latency[level] + n_bytes * rates.link[level]
            part = max(part + rates.latency[level], begins + asked[i] * rates.link[level])
            all_ = max(all_ + rates.latency[level], begins + n_bytes * rates.link[level])
            begun[level, i] = begins
            whole[level, i] = all_
        wait_s[i] = part - now
    return wait_s, under_way


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
    results = {name: run.result(LRU) for name, run in runs.items()}
    return Shares(_total(list(results.values()), caches), results)


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
            parts.append((name, trace.part(asked), elsewhere))
    return parts


def _total(results: Sequence[Result], caches: Mapping[str, CacheConfig]) -> Result:
    """Every count is the sum over the caches; hours are joined by time."""
    sums = {
        field.name: sum(getattr(result, field.name) for result in results)
        for field in dataclasses.fields(Result)
        if field.type is int
    }
    capacity_bytes = sum(cache.capacity_bytes for cache in caches.values())  # also of those without an access
    return Result(
        **(sums | {"capacity_bytes": capacity_bytes}),
        policy=LRU,
        seconds=sum(result.seconds for result in results),
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
    used = np.zeros(hours.size, np.int64)
    for part in parts:
        last = np.searchsorted(part.time_s, hours, side="right") - 1
        known = last >= 0
        used[known] += part.used_bytes[last[known]]
    return Fill(hours, used)
