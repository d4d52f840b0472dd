"""What an XCache of one size did with every access, file and part of a trace; distributions of the files."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.hosts import first_fit
from features.common.jit import kernel
from features.common.times import DAY_S
from replay.config import CacheConfig
from replay.engine import simulate
from replay.kernels.disk import BYPASSED, HIT
from replay.read.values import codes_of
from replay.result import Result
from replay.study.benefit import BytesRead, Region
from replay.trace import ItemArray, Trace

NEVER = -1


@dataclasses.dataclass(frozen=True, eq=False)
class Use:
    """A trace and the outcome of its accesses, bool[n]; properties are per file of the trace, read or not.

    `hit`: served from the cache; `passed`: read past it, because the file was not admitted or did not fit.
    Bytes are those of whole files.
    """

    trace: Trace
    hit: BoolArray
    passed: BoolArray

    @cached_property
    def accesses(self) -> IntArray:
        """Accesses of each file, int64[m]."""
        return np.bincount(self.trace.item, minlength=self.trace.n_items)

    @cached_property
    def hits(self) -> IntArray:
        """Hits of each file, int64[m]."""
        return np.bincount(self.trace.item[self.hit], minlength=self.trace.n_items)

    @cached_property
    def first_s(self) -> IntArray:
        """Time of each file's first access, int64[m]; -1 if there is none."""
        return self._time_of(slice(None, None, -1))

    @cached_property
    def last_s(self) -> IntArray:
        """Time of each file's last access, int64[m]; -1 if there is none."""
        return self._time_of(slice(None))

    @cached_property
    def gap_s(self) -> IntArray:
        """Time since the previous access to the same file, int64[n]; -1 for a first access."""
        again = self.trace.following
        earlier = np.flatnonzero(again < self.trace.n_accesses)
        later = again[earlier]
        gap = np.full(self.trace.n_accesses, NEVER, np.int64)
        gap[later] = self.trace.time_s[later] - self.trace.time_s[earlier]
        return gap

    @cached_property
    def requested_bytes(self) -> IntArray:
        """Bytes requested of each file, int64[m]."""
        return self.accesses * self.trace.size_bytes

    @cached_property
    def hit_bytes(self) -> IntArray:
        """Bytes of each file served from the cache, int64[m]."""
        return self.hits * self.trace.size_bytes

    @cached_property
    def inflow_bytes(self) -> IntArray:
        """Bytes of each file that came into the cache, int64[m]."""
        came = ~self.hit & ~self.passed
        return np.bincount(self.trace.item[came], minlength=self.trace.n_items) * self.trace.size_bytes

    @property
    def hit_ratio(self) -> float:
        """Accesses served from the cache, as a share of all."""
        return float(self.hit.mean())

    @property
    def byte_hit_ratio(self) -> float:
        """Bytes served from the cache as a share of those requested; 0 if none were."""
        requested = int(self.requested_bytes.sum())
        return int(self.hit_bytes.sum()) / requested if requested else 0.0

    def _time_of(self, order: slice) -> IntArray:
        # With repeated indices the last assignment stays, which in time order is the last access.
        at = np.full(self.trace.n_items, NEVER, np.int64)
        at[self.trace.item[order]] = self.trace.time_s[order]
        return at


def replayed(trace: Trace, config: CacheConfig) -> tuple[Use, Result]:
    """Replay `trace` through an XCache: the outcome of each access, and the sums over all."""
    outcome = np.zeros(trace.n_accesses, np.uint8)
    result = simulate(trace, config, outcome=outcome)
    return Use(trace, (outcome & HIT) != 0, (outcome & BYPASSED) != 0), result


def replayed_without(trace: Trace, config: CacheConfig, refused: BoolArray) -> Use:
    """Replay `trace` through an XCache that admits no file of `refused`, bool[m]: those are read past it."""
    passed = refused[trace.item]
    hit = np.zeros(trace.n_accesses, np.bool_)
    if not passed.all():
        entering = ~passed
        admitted, _ = replayed(trace.part(entering), config)
        hit[entering], passed[entering] = admitted.hit, admitted.passed
    return Use(trace, hit, passed)


def lru_age_s(use: Use) -> int | None:
    """The LRU age: re-reads within it after the previous access mostly hit, later ones mostly miss.

    It is the gap that separates hits from misses with the fewest errors, over all accesses that are not a
    file's first. None if no such access misses.
    """
    again = use.gap_s >= 0
    gap, hit = use.gap_s[again], use.hit[again]
    if hit.all():
        return None
    order = np.argsort(gap)
    gap, hit = gap[order], hit[order]
    # A cut after k gaps takes the first k for hits. Errors are misses among them, and hits after them.
    wrong = np.cumsum(~hit) + (hit.sum() - np.cumsum(hit))
    last_of_gap = np.append(gap[1:] != gap[:-1], True)
    wrong[~last_of_gap] = gap.size + 1
    best = int(wrong.argmin())
    return int(gap[best]) if wrong[best] < hit.sum() else 0


@kernel
def total_by(group: ItemArray, amount: IntArray, n_groups: int) -> IntArray:
    """Sums of `amount` per group (below 0: none), int64[n_groups]; exact, unlike weighted counts."""
    total = np.zeros(n_groups, np.int64)
    for i in range(group.size):
        if group[i] >= 0:
            total[group[i]] += amount[i]
    return total


BINS_PER_DECADE = 2
RANK_POINTS = 200
MEAN_DAYS = 14
HOTNESS_CLASSES = ((1, 1), (2, 2), (3, 5), (6, 10), (11, 100), (101, 1000), (1001, None))


class Sizes(NamedTuple):
    """Files that were read, and their bytes, by size; bin k is edges_bytes[k] … edges_bytes[k + 1]."""

    edges_bytes: FloatArray
    files: IntArray
    footprint_bytes: IntArray


@dataclasses.dataclass(frozen=True)
class Hotness:
    """The files that were read `least` to `most` times (None: no limit)."""

    least: int
    most: int | None
    files: int
    accesses: int
    requested_bytes: int


class Ranks(NamedTuple):
    """Accesses of the file of each `rank`; rank 1 is the most read. Up to 200 ranks, evenly spaced in log."""

    rank: IntArray
    accesses: IntArray


class HitsByAge(NamedTuple):
    """Hits, and bytes served, by days since the file's first access; entry k is for k to k + 1 days."""

    hits: IntArray
    hit_bytes: IntArray


def sizes(use: Use) -> Sizes:
    """The size distribution of the files read; empty files count as one byte."""
    size = use.trace.size_bytes[use.accesses > 0]
    decade = np.log10(np.maximum(size, 1))
    low, high = int(np.floor(decade.min())), int(np.floor(decade.max())) + 1
    n_bins = (high - low) * BINS_PER_DECADE
    edges = 10.0 ** (low + np.arange(n_bins + 1) / BINS_PER_DECADE)
    bin_of = (np.searchsorted(edges, np.maximum(size, 1), side="right") - 1).astype(np.int32)
    return Sizes(edges, np.bincount(bin_of, minlength=n_bins), total_by(bin_of, size, n_bins))


def hotness(use: Use) -> list[Hotness]:
    """Files, accesses and bytes by how often a file is read; without classes that have no file."""
    rows = []
    for least, most in HOTNESS_CLASSES:
        in_class = (use.accesses >= least) & (use.accesses <= (most or np.iinfo(np.int64).max))
        if in_class.any():
            accesses, requested = use.accesses[in_class], use.requested_bytes[in_class]
            rows.append(Hotness(least, most, int(in_class.sum()), int(accesses.sum()), int(requested.sum())))
    return rows


def ranks(use: Use) -> Ranks:
    """Accesses against rank, for the log-log plot."""
    falling = np.sort(use.accesses[use.accesses > 0])[::-1]
    rank = np.unique(np.geomspace(1, falling.size, RANK_POINTS).round().astype(np.int64))
    return Ranks(rank, falling[rank - 1])


def hits_by_age(use: Use) -> HitsByAge:
    """Hits by the age of their file."""
    of_hits = use.trace.item[use.hit]
    n_days = int((use.last_s - use.first_s)[use.accesses > 0].max()) // DAY_S + 1
    age = ((use.trace.time_s[use.hit] - use.first_s[of_hits]) // DAY_S).astype(np.int32)
    size_bytes = use.trace.size_bytes[of_hits]
    return HitsByAge(np.bincount(age, minlength=n_days), total_by(age, size_bytes, n_days))


def running_mean(per_day: IntArray | FloatArray) -> FloatArray:
    """The mean of each day and the `MEAN_DAYS` - 1 before it; at the beginning, of the days there are."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(per_day)])
    end = np.arange(1, per_day.size + 1)
    begin = np.maximum(end - MEAN_DAYS, 0)
    return np.asarray((total[end] - total[begin]) / (end - begin), np.float64)


ACTIVITY, UNKNOWN = "activity", "unknown"


@dataclasses.dataclass(frozen=True)
class Part:
    """Accesses with one label: the files whose first access has it, and all accesses that have it."""

    label: str
    files: int
    footprint_bytes: int
    accesses: int
    hits: int
    requested_bytes: int
    hit_bytes: int


@dataclasses.dataclass(frozen=True)
class Origin(Part):
    """The accesses to one region, its `label`."""

    rtt_ms: float | None


def origins(use: Use, details: pa.Table, regions: Sequence[Region]) -> list[Origin]:
    """The regions of a trace in the order of `regions`, then `unknown`; without those that have no access.

    `details`: one row per access, with a column `origin` if the trace has one.
    """
    code, names = _codes(use, details, regions)
    rtt = {region.name: region.rtt_ms for region in regions}
    return [
        Origin(**dataclasses.asdict(part), rtt_ms=rtt.get(part.label)) for part in _parts(use, code, names)
    ]


def activities(use: Use, details: pa.Table) -> list[Part]:
    """The activities of a trace, `unknown` last; none if it has no column `activity`, or nothing in it."""
    code, names = activities_of(details)
    return list(_parts(use, code, names)) if names else []


def activities_of(details: pa.Table) -> tuple[ItemArray, list[str]]:
    """The activity of each access, and the names of activities, `unknown` last; none if none is stated."""
    if ACTIVITY not in details.column_names:
        return np.zeros(details.num_rows, np.int32), []
    code, values = codes_of(details[ACTIVITY])
    is_stated = code >= 0
    # A column without any value may still have words: those of other rows, or Arrow's null.
    names = [*values.to_pylist(), UNKNOWN] if is_stated.any() else []
    return np.where(is_stated, code, np.int32(len(values))), names


def _parts(use: Use, code: ItemArray, names: Sequence[str]) -> Iterator[Part]:
    """The parts that have accesses; `code`: the index in `names` of each access."""
    n, size = len(names), use.trace.size_bytes
    of_access = size[use.trace.item]
    of_file = np.full(use.trace.n_items, -1, np.int32)
    of_file[use.trace.item[::-1]] = code[::-1]
    columns = (
        np.bincount(of_file[of_file >= 0], minlength=n),
        total_by(of_file, size, n),
        np.bincount(code, minlength=n),
        np.bincount(code[use.hit], minlength=n),
        total_by(code, of_access, n),
        total_by(code, np.where(use.hit, of_access, 0), n),
    )
    return (Part(names[k], *(int(column[k]) for column in columns)) for k in range(n) if columns[2][k])


def reads(parts: Sequence[Origin]) -> BytesRead:
    """The input of the benefit model: bytes hit and missed by round-trip time."""
    return BytesRead(
        rtt_ms=np.array([np.nan if o.rtt_ms is None else o.rtt_ms for o in parts]),
        miss_bytes=np.array([o.requested_bytes - o.hit_bytes for o in parts], np.int64),
        hit_bytes=np.array([o.hit_bytes for o in parts], np.int64),
    )


def _codes(use: Use, details: pa.Table, regions: Sequence[Region]) -> tuple[ItemArray, list[str]]:
    if "origin" in details.column_names:
        return regions_of(details["origin"], regions)
    names = [region.name for region in regions] + [UNKNOWN]
    return np.full(use.trace.n_accesses, len(regions), np.int32), names


def regions_of(origin: pa.ChunkedArray, regions: Sequence[Region]) -> tuple[ItemArray, list[str]]:
    """The region of each access by its origin (host, host:port, URL or RSE), and the regions' names.

    The first region with a matching pattern counts; case does not matter. The last name is `unknown`.
    """
    code, values = codes_of(origin)
    of_origin = first_fit(values.cast(pa.string()), [region.hosts for region in regions])
    of_origin = np.append(of_origin, len(regions))  # for code -1, where none is stated
    return of_origin[code].astype(np.int32), [region.name for region in regions] + [UNKNOWN]
