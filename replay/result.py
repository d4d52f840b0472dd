"""What a replay gives back, and how far it closes the gap between LRU and the bound."""

from __future__ import annotations

import dataclasses

import numpy as np

from replay.planner import BoolArray, IntArray
from replay.trace import Trace

DAY_S = 86400


@dataclasses.dataclass(frozen=True, eq=False)
class Daily:
    """One entry per day of the counted window, gaps filled with 0; `day` counts from 1970-01-01 (UTC).

    `wan_bytes` are demand misses and prefetches of the day.
    """

    day: IntArray
    hits: IntArray
    misses: IntArray
    hit_bytes: IntArray
    wan_bytes: IntArray


@dataclasses.dataclass(frozen=True, eq=False)
class Fill:
    """Usage on the hour, before a purge or plan at that second; empty for policies that know no time."""

    time_s: IntArray
    used_bytes: IntArray


@dataclasses.dataclass(frozen=True, eq=False)
class Placed:
    """What the planner cost and earned: bytes prefetched at `time_s`, and what became of them."""

    time_s: IntArray
    prefetch_bytes: IntArray
    prefetch_read_bytes: int = 0
    wasted_bytes: int = 0
    refetch_bytes: int = 0


NO_FILL = Fill(np.zeros(0, np.int64), np.zeros(0, np.int64))
NOTHING_PLACED = Placed(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """A replay's outcome over its counted window. Bytes are those of whole files.

    `wan_bytes` = demand misses (among them `refetch_bytes`: first misses of files the plan evicted, and
    `bypassed_bytes`: misses that did not fit) + `prefetch_bytes`. Prefetched bytes are either read later
    (`prefetch_read_bytes`) or `wasted_bytes`. `peak_usage_bytes`: the most held at once in the window.
    `seconds`: how long the replay took. The byte bound's `hits` are requests held in full, no bound on hits.
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
    peak_usage_bytes: int
    seconds: float
    daily: Daily
    fill: Fill

    @property
    def hit_ratio(self) -> float:
        """Requests served from the cache, as a share of all."""
        return self.hits / self.requests

    @property
    def byte_hit_ratio(self) -> float:
        """Bytes served from the cache, as a share of those requested; 0 if none were."""
        return self.hit_bytes / self.bytes_requested if self.bytes_requested else 0.0

    @property
    def prefetch_precision(self) -> float | None:
        """Share of the prefetched bytes that were read later; None without prefetch."""
        return self.prefetch_read_bytes / self.prefetch_bytes if self.prefetch_bytes else None


def byte_gap_closed(lru: Result, plan: Result, bound: Result) -> float | None:
    """(WAN_LRU - WAN_plan) / (WAN_LRU - WAN_bound): 0 is no better than LRU, 1 is the best possible.

    None where LRU already reaches the bound.
    """
    gap = lru.wan_bytes - bound.wan_bytes
    return (lru.wan_bytes - plan.wan_bytes) / gap if gap else None


def summarise(
    policy: str,
    trace: Trace,
    *,
    capacity_bytes: int,
    count_from_s: int,
    hit: BoolArray,
    hit_bytes: IntArray,
    peak_usage_bytes: int,
    seconds: float,
    placed: Placed = NOTHING_PLACED,
    bypassed_bytes: int = 0,
    fill: Fill = NO_FILL,
) -> Result:
    """The Result of the accesses at or after `count_from_s`; `hit` and `hit_bytes` hold only these."""
    first = trace.n_accesses - hit.size
    time_s = trace.time_s[first:]
    requested = trace.size_bytes[trace.item[first:]]
    days = np.arange(count_from_s // DAY_S, int(time_s[-1]) // DAY_S + 1)
    missed = requested - hit_bytes
    wan = _per_day(days, time_s, missed) + _per_day(days, placed.time_s, placed.prefetch_bytes)
    return Result(
        policy=policy,
        capacity_bytes=capacity_bytes,
        requests=hit.size,
        hits=int(hit.sum()),
        bytes_requested=int(requested.sum()),
        hit_bytes=int(hit_bytes.sum()),
        wan_bytes=int(wan.sum()),
        prefetch_bytes=int(placed.prefetch_bytes.sum()),
        prefetch_read_bytes=placed.prefetch_read_bytes,
        wasted_bytes=placed.wasted_bytes,
        refetch_bytes=placed.refetch_bytes,
        bypassed_bytes=bypassed_bytes,
        peak_usage_bytes=peak_usage_bytes,
        seconds=seconds,
        daily=Daily(
            day=days,
            hits=_per_day(days, time_s, hit.astype(np.int64)),
            misses=_per_day(days, time_s, (~hit).astype(np.int64)),
            hit_bytes=_per_day(days, time_s, hit_bytes),
            wan_bytes=wan,
        ),
        fill=fill,
    )


def _per_day(days: IntArray, time_s: IntArray, amount: IntArray) -> IntArray:
    edges = np.searchsorted(time_s, np.append(days, days[-1] + 1) * DAY_S)
    # Differences of an integer running sum stay exact where weighted counts would turn to float.
    return np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(amount)])[edges])
