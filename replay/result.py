"""The result of a replay."""

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np

from features.common.arrays import IntArray, short_repr
from features.common.times import DAY_S, HOUR_S, day_label
from replay.kernels.accesses import FETCHED, HIT_BYTES, HITS, REQUESTED, Tally


@dataclasses.dataclass(frozen=True, eq=False)
class Hourly:
    """One entry per hour of the counted window that has an access or a prefetch; `time_s`: its first second.

    `wan_bytes`: of demand misses and prefetches; `prefetch_bytes`: of the latter.
    """

    time_s: IntArray
    requests: IntArray
    hits: IntArray
    hit_bytes: IntArray
    wan_bytes: IntArray
    prefetch_bytes: IntArray


@dataclasses.dataclass(frozen=True, eq=False)
class Daily:
    """One entry per day of the counted window, also without an access; `day`: days since 1970-01-01 (UTC).

    `wan_bytes`: of demand misses and prefetches; `prefetch_bytes`: of the latter.
    """

    day: IntArray
    hits: IntArray
    misses: IntArray
    hit_bytes: IntArray
    wan_bytes: IntArray
    prefetch_bytes: IntArray

    def rows(self) -> list[dict[str, Any]]:
        """The sums of each day by name, and the day as `on_day`, for example `2026-03-01`."""
        names = ("hits", "misses", "hit_bytes", "wan_bytes", "prefetch_bytes")
        columns = [getattr(self, name).tolist() for name in names]
        return [
            {"on_day": day_label(day * DAY_S), **dict(zip(names, sums, strict=True))}
            for day, *sums in zip(self.day.tolist(), *columns, strict=True)
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class Fill:
    """Mean usage after the accesses of each hour that begins at `time_s`; empty if policies know no time."""

    time_s: IntArray
    used_bytes: IntArray


@dataclasses.dataclass(frozen=True, eq=False)
class Placed:
    """Bytes that a planner prefetched at `time_s`, and what became of them."""

    time_s: IntArray
    prefetch_bytes: IntArray
    prefetch_read_bytes: int = 0
    wasted_bytes: int = 0
    refetch_bytes: int = 0


NO_FILL = Fill(np.zeros(0, np.int64), np.zeros(0, np.int64))
NOTHING_PLACED = Placed(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The sums over a replay's counted window; bytes are of whole files, or bytes read of partial ones.

    `hits`: requests served from disk in full. `wan_bytes`: bytes fetched for requests + `prefetch_bytes`.
    Among the former are `refetch_bytes`, first misses of files that the plan evicted, and `bypassed_bytes`,
    of files that were not admitted or did not fit. Prefetched bytes are either read later
    (`prefetch_read_bytes`) or `wasted_bytes`. `ssd_hit_bytes`: bytes served by the SSD tier, if there is one.
    `peak_usage_bytes`: the most held at once in the window. `seconds`: duration of the replay. The byte
    bound's `hits` are requests held in full, no bound on hits.
    """

    policy: str
    capacity_bytes: int
    requests: int
    hits: int
    bytes_requested: int
    hit_bytes: int
    wan_bytes: int
    prefetch_bytes: int
    prefetch_read_bytes: int
    wasted_bytes: int
    refetch_bytes: int
    bypassed_bytes: int
    ssd_hit_bytes: int
    peak_usage_bytes: int
    seconds: float
    hourly: Hourly
    fill: Fill

    def __repr__(self) -> str:
        named = ("policy", "capacity_bytes", "requests", "hits", "byte_hit_ratio", "wan_bytes")
        return short_repr(self, *named)

    @property
    def hit_ratio(self) -> float:
        """Share of the requests that were served from the cache."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def object_miss_ratio(self) -> float:
        """Share of the requests that were not served from the cache in full."""
        return (self.requests - self.hits) / self.requests if self.requests else 0.0

    @property
    def byte_hit_ratio(self) -> float:
        """Share of the requested bytes that were served from the cache; 0 if none were requested."""
        return self.hit_bytes / self.bytes_requested if self.bytes_requested else 0.0

    @property
    def byte_miss_ratio(self) -> float:
        """Share of the requested bytes that were not served from the cache; 0 if none were requested."""
        missed = self.bytes_requested - self.hit_bytes
        return missed / self.bytes_requested if self.bytes_requested else 0.0

    @property
    def prefetch_precision(self) -> float | None:
        """Share of the prefetched bytes that were read later; None without prefetch."""
        return self.prefetch_read_bytes / self.prefetch_bytes if self.prefetch_bytes else None

    @property
    def prefetch_coverage(self) -> float | None:
        """Share of the bytes needed from the WAN that a prefetch had brought; None without prefetch."""
        came = self.prefetch_read_bytes + self.wan_bytes - self.prefetch_bytes
        return self.prefetch_read_bytes / came if self.prefetch_bytes else None

    @property
    def peak_hour_wan_bytes(self) -> int:
        """The most WAN bytes of any hour."""
        return int(self.hourly.wan_bytes.max())

    @cached_property
    def daily(self) -> Daily:
        """The hours summed by day."""
        hourly = self.hourly
        days = np.arange(hourly.time_s[0] // DAY_S, hourly.time_s[-1] // DAY_S + 1)
        edges = np.searchsorted(hourly.time_s, np.append(days, days[-1] + 1) * DAY_S)
        hits, misses = hourly.hits, hourly.requests - hourly.hits
        columns = (hits, misses, hourly.hit_bytes, hourly.wan_bytes, hourly.prefetch_bytes)
        # Differences of an integer running sum are exact; weighted counts would be floats.
        return Daily(days, *(np.diff(np.append(0, np.cumsum(column))[edges]) for column in columns))


def tallied(
    policy: str,
    tally: Tally,
    *,
    capacity_bytes: int,
    count_from_s: int,
    peak_usage_bytes: int,
    seconds: float,
    placed: Placed = NOTHING_PLACED,
    bypassed_bytes: int = 0,
    ssd_hit_bytes: int = 0,
    timed: bool = False,
) -> Result:
    """The Result of a filled tally; `timed`: the tally has the usage of each hour."""
    totals, fill = tally.sums.sum(axis=0), NO_FILL
    if timed:
        mean_bytes = tally.used / np.maximum(1, np.diff(tally.first))
        fill = Fill(tally.hour * HOUR_S, np.rint(mean_bytes).astype(np.int64))
    prefetched = int(placed.prefetch_bytes.sum())
    return Result(
        policy=policy,
        capacity_bytes=capacity_bytes,
        requests=int(tally.first[-1] - tally.first[0]),
        hits=int(totals[HITS]),
        bytes_requested=int(totals[REQUESTED]),
        hit_bytes=int(totals[HIT_BYTES]),
        wan_bytes=int(totals[FETCHED]) + prefetched,
        prefetch_bytes=prefetched,
        prefetch_read_bytes=placed.prefetch_read_bytes,
        wasted_bytes=placed.wasted_bytes,
        refetch_bytes=placed.refetch_bytes,
        bypassed_bytes=bypassed_bytes,
        ssd_hit_bytes=ssd_hit_bytes,
        peak_usage_bytes=peak_usage_bytes,
        seconds=seconds,
        hourly=_hourly(tally, placed, count_from_s),
        fill=fill,
    )


def _hourly(tally: Tally, placed: Placed, count_from_s: int) -> Hourly:
    # The first hour of the window is included even without an access, since days are counted from it.
    placed_hour = placed.time_s // HOUR_S
    hours = np.unique(np.concatenate([tally.hour, placed_hour, [count_from_s // HOUR_S]]))
    columns = np.zeros((5, hours.size), np.int64)
    columns[:4, np.searchsorted(hours, tally.hour)] = [
        np.diff(tally.first),
        *tally.sums[:, [HITS, HIT_BYTES, FETCHED]].T,
    ]
    np.add.at(columns[4], np.searchsorted(hours, placed_hour), placed.prefetch_bytes)
    columns[3] += columns[4]
    return Hourly(hours * HOUR_S, *columns)
