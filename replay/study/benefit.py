"""The HS06-hours that a cache saves the jobs that read through it, from bytes and round-trip times.

A job's walltime is its CPU time divided by its CPU efficiency, which depends on where its bytes come
from. Sources: PIC, "A case study of content delivery networks for the CMS experiment"; CERN, "I/O
performance studies of analysis workloads on production and dedicated resources"; DOMA, the DOMA-access
caching review; KIT, "Advancing throughput of HEP analysis work-flows using caching concepts".
docs/worth-it.md derives the defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray, IntArray
from features.common.errors import ConfigError
from features.common.times import HOUR_S


class Region(NamedTuple):
    """Origins that match `hosts` (patterns, for example `*.fr`), and their round-trip time if known."""

    name: str
    hosts: tuple[str, ...]
    rtt_ms: float | None


@dataclasses.dataclass(frozen=True)
class EfficiencyPoint:
    """CPU efficiency (0 … 1) of a job that reads over this round-trip time, and who measured it."""

    rtt_ms: float
    cpu_efficiency: float
    source: str


@dataclasses.dataclass(frozen=True)
class Tier:
    """A cache's medium; reading at its rate comes on top of the walltime that a local read takes."""

    name: str
    read_rate_bytes_s: float


PUBLISHED_POINTS = (
    EfficiencyPoint(0.0, 0.98, "PIC: MINIAOD job, local"),
    EfficiencyPoint(9.4, 0.85, "PIC: MINIAOD job, 650 km (at PIC's 9 ms for 620 km)"),
    EfficiencyPoint(16.0, 0.80, "PIC: MINIAOD job, 1 100 km (at PIC's 9 ms for 620 km)"),
    EfficiencyPoint(150.0, 0.65, "PIC: MINIAOD job, FNAL, 7 000 km"),
)
PUBLISHED_HIT_POINTS = (
    EfficiencyPoint(0.0, 0.98, "PIC: MINIAOD job, local"),
    EfficiencyPoint(9.0, 0.98, "PIC: CRAB jobs at the second site, very close to local reads"),
    EfficiencyPoint(150.0, 0.65, "assumed: as from an origin at this distance"),
)
"""Of hits, by the round-trip time to the cache: a cache answers faster than a federation at its distance."""
SSD = Tier("ssd", 986e6)


@dataclasses.dataclass(frozen=True)
class BenefitModel:
    """The model's parameters; defaults are the published figures. Raises ConfigError.

    `points`: of reads from an origin, ascending in rtt_ms, descending in efficiency; `hit_points`: of hits,
    by the round-trip time to the cache. For origins of unknown distance, misses have
    `unknown_remote_efficiency` and hits `unknown_local_efficiency` (PIC's CRAB jobs). A miss takes
    `miss_slowdown` (a fraction) longer than a direct read. Hits are read from `medium`.
    """

    points: tuple[EfficiencyPoint, ...] = PUBLISHED_POINTS
    hit_points: tuple[EfficiencyPoint, ...] = PUBLISHED_HIT_POINTS
    unknown_remote_efficiency: float = 0.704
    unknown_local_efficiency: float = 0.95
    miss_slowdown: float = 0.0
    cache_rtt_ms: float = 0.0
    job_read_rate_bytes_s: float = 2.4e6
    hs06_per_core: float = 10.0
    medium: Tier = SSD

    def __post_init__(self) -> None:
        shares = [self.unknown_remote_efficiency, self.unknown_local_efficiency]
        for name, points in (("points", self.points), ("hit_points", self.hit_points)):
            rtt = [point.rtt_ms for point in points]
            efficiency = [point.cpu_efficiency for point in points]
            if not rtt or sorted(set(rtt)) != rtt or sorted(efficiency, reverse=True) != efficiency:
                raise ConfigError(
                    f"benefit.{name}", "must have ascending rtt_ms and descending cpu_efficiency"
                )
            shares += efficiency
        if not all(0 < share <= 1 for share in shares):
            raise ConfigError("benefit", f"CPU efficiencies must be above 0 and at most 1, not {shares}")
        if min(self.job_read_rate_bytes_s, self.hs06_per_core) <= 0:
            raise ConfigError("benefit", "job_read_rate and hs06_per_core must be above 0")


@dataclasses.dataclass(frozen=True, eq=False)
class BytesRead:
    """Bytes that jobs read, by the round-trip time to their origin.

    `rtt_ms`: float[k], NaN if unknown; `miss_bytes`: int[k], read from the origin through the cache;
    `hit_bytes`: int[k], found in the cache; `direct_bytes`: int[k] or None, read from the origin without a
    cache.
    """

    rtt_ms: FloatArray
    miss_bytes: IntArray
    hit_bytes: IntArray
    direct_bytes: IntArray | None = None

    @property
    def direct(self) -> BytesRead:
        """The same bytes, all read from their origins without a cache."""
        nothing = np.zeros_like(self.miss_bytes)
        return BytesRead(self.rtt_ms, nothing, nothing, self.miss_bytes + self.hit_bytes)


@dataclasses.dataclass(frozen=True)
class Cost:
    """The time that jobs took to read and process their bytes."""

    cpu_hours: float
    core_hours: float
    hs06_hours: float

    @property
    def cpu_efficiency(self) -> float:
        """CPU time as a share of walltime; 0 without any."""
        return self.cpu_hours / self.core_hours if self.core_hours else 0.0


def cpu_efficiency(rtt_ms: FloatArray, points: Sequence[EfficiencyPoint] = PUBLISHED_POINTS) -> FloatArray:
    """CPU efficiency at each round-trip time: straight lines through `points`, clamped at the ends."""
    x, y = [p.rtt_ms for p in points], [p.cpu_efficiency for p in points]
    return np.asarray(np.interp(rtt_ms, x, y), np.float64)


def cost(reads: BytesRead, model: BenefitModel) -> Cost:
    """CPU, core and HS06-hours of the jobs that made `reads`.

    A job computes one second per `job_read_rate_bytes_s` bytes, wherever these come from.
    """
    past, missed, hit = core_hours_per_byte(reads.rtt_ms, model)
    direct = np.zeros_like(reads.miss_bytes) if reads.direct_bytes is None else reads.direct_bytes
    core_hours = float((direct * past + reads.miss_bytes * missed + reads.hit_bytes * hit).sum())
    n_bytes = float(direct.sum() + reads.miss_bytes.sum() + reads.hit_bytes.sum())
    return Cost(
        cpu_hours=n_bytes / model.job_read_rate_bytes_s / HOUR_S,
        core_hours=core_hours,
        hs06_hours=core_hours * model.hs06_per_core,
    )


def core_hours_per_byte(rtt_ms: FloatArray, model: BenefitModel) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Core-hours per byte that is read directly, missed and hit, by the origin's round-trip time or NaN."""
    unknown = np.isnan(rtt_ms)
    near = cpu_efficiency(np.array([model.cache_rtt_ms]), model.hit_points)[0]
    local = np.where(unknown, model.unknown_local_efficiency, near)
    far = cpu_efficiency(np.nan_to_num(rtt_ms), model.points)
    cpu_h, wait_h = 1 / model.job_read_rate_bytes_s / HOUR_S, 1 / model.medium.read_rate_bytes_s / HOUR_S
    direct = cpu_h / np.where(unknown, model.unknown_remote_efficiency, far)
    return direct, direct * (1 + model.miss_slowdown), cpu_h / local + wait_h


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A site in KIT's Eq. 1: a shared network, caches on `n_nodes` nodes, jobs in `n_slots` slots."""

    network_bytes_s: float
    cache_bytes_s_per_node: float
    n_nodes: int
    workflow_bytes_s_per_slot: float
    n_slots: int


def processing_s(cluster: Cluster, volume_bytes: float, cached_fraction: FloatArray) -> FloatArray:
    """KIT's Eq. 1: the longest of reading remotely, reading from the caches, and computing, float64[n]."""
    remote_s = (1 - cached_fraction) * volume_bytes / cluster.network_bytes_s
    cached_s = cached_fraction * volume_bytes / (cluster.cache_bytes_s_per_node * cluster.n_nodes)
    compute_s = volume_bytes / _compute_bytes_s(cluster)
    return np.asarray(np.maximum(np.maximum(remote_s, cached_s), compute_s), np.float64)


def best_cached_fraction(cluster: Cluster) -> float:
    """The smallest cached fraction that minimises the time of Eq. 1.

    If network and caches are both busy until the end, the fraction is caches / (caches + network). If the
    jobs compute for longer than that, the network has time to fetch more, and less must be cached.
    """
    caches = cluster.cache_bytes_s_per_node * cluster.n_nodes
    total = min(cluster.network_bytes_s + caches, _compute_bytes_s(cluster))
    return max(0.0, 1 - cluster.network_bytes_s / total)


def _compute_bytes_s(cluster: Cluster) -> float:
    return cluster.workflow_bytes_s_per_slot * cluster.n_slots
