"""Ranks sites for a job: what they hold of its input, and how long it would take there by KIT's Eq. 1.

Source: KIT, "Advancing throughput of HEP analysis work-flows using caching concepts" (NaviX).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from features.common.arrays import FloatArray
from prefetch.placement.snapshot import Snapshot
from replay.study.benefit import Cluster, processing_s

QUIETEST, BUSIEST = 0.8, 1.25
"""Loads beyond count as these: at the default rates a busy cache that holds all still beats an empty one."""


@dataclasses.dataclass(frozen=True)
class CacheScore:
    """One cache: the share of the input that it holds, now and after its plan, and Eq. 1 for it alone, s.

    `load`: how busy it is, 1 for the mean of its site's caches; None: unknown, which counts as the mean.
    """

    cache: str
    cached_fraction: float
    predicted_fraction: float
    processing_s: float
    load: float | None


@dataclasses.dataclass(frozen=True)
class SiteScore:
    """One site: its live caches together, and each alone, best first. `rank`: 1 is best, or released."""

    site: str
    rank: int
    cached_fraction: float
    predicted_fraction: float
    processing_s: float
    predicted_processing_s: float
    caches: list[CacheScore]


@dataclasses.dataclass(frozen=True)
class Score:
    """The sites for one input, best first. `released`: waiting for a better one saves nothing more."""

    as_of: str
    input_bytes: int
    unknown_inputs: int
    max_wait_s: float
    released: bool
    sites: list[SiteScore]


def score(
    snapshot: Snapshot,
    inputs: Sequence[str],
    sizes: Sequence[int | None],
    *,
    alive: Mapping[str, frozenset[str]],
    clusters: Mapping[str, Cluster],
    waited_s: float,
    max_wait_s: float,
) -> Score:
    """Rank the sites of `alive` (their live caches by name) for a job that reads `inputs`.

    `sizes`: bytes of each input, where the asker knows them; inputs whose size nobody knows are counted and
    left out. `clusters`: rates of each site; `n_nodes` is what is alive.
    """
    known = snapshot.fractions(inputs)
    stated_bytes = np.array([-1 if size is None else size for size in sizes], np.int64)
    volume = np.where(known.size_bytes >= 0, known.size_bytes, stated_bytes)
    weights = np.maximum(volume, 0).astype(np.float64)
    total = float(weights.sum())
    held: dict[str, dict[str, FloatArray]] = {site: {} for site in alive}
    for at, (cache, site) in enumerate(snapshot.caches):
        if cache in alive.get(site, ()):
            held[site][cache] = np.stack([known.cached[:, at], known.predicted[:, at]], axis=1)
    sites = [
        _site(
            site, held[site], weights, dataclasses.replace(clusters[site], n_nodes=len(live)), snapshot.loads
        )
        for site, live in sorted(alive.items())
    ]
    sites.sort(
        key=lambda s: (
            s.processing_s,
            s.predicted_processing_s,
            -s.cached_fraction,
            _load(s.caches, [cache.cached_fraction for cache in s.caches]),
            s.site,
        )
    )
    saved_s = sites[-1].processing_s - sites[0].processing_s if sites else 0.0
    wait_s = min(max_wait_s, saved_s)
    released = waited_s >= wait_s
    ranked = [dataclasses.replace(s, rank=1 if released else i + 1) for i, s in enumerate(sites)]
    return Score(snapshot.as_of, int(total), int((volume < 0).sum()), round(wait_s, 3), released, ranked)


def _site(
    site: str,
    held: Mapping[str, FloatArray],
    weights: FloatArray,
    cluster: Cluster,
    loads: Mapping[str, float],
) -> SiteScore:
    """`held`: what caches have of each input now, and after plans, float[n, 2]; `weights`: its bytes."""
    volume_bytes, alone = float(weights.sum()), dataclasses.replace(cluster, n_nodes=1)
    share = weights / volume_bytes if volume_bytes else weights
    caches = []
    for cache, part in held.items():
        now, soon = map(_fraction, (share @ part).tolist())
        load = _bounded(loads[cache]) if cache in loads else None
        caches.append(CacheScore(cache, now, soon, _eq1(alone, volume_bytes, now, load or 1.0), load))
    caches.sort(key=lambda cache: (cache.processing_s, cache.load or 1.0, cache.cache))
    # What several caches have of an input counts once.
    together = np.minimum(sum(held.values(), np.zeros((weights.size, 2))), 1.0)
    now, soon = map(_fraction, (share @ together).tolist())
    parts = [cache.cached_fraction for cache in caches], [cache.predicted_fraction for cache in caches]
    now_s, soon_s = (
        _eq1(cluster, volume_bytes, x, _load(caches, part))
        for x, part in zip((now, soon), parts, strict=True)
    )
    return SiteScore(site, 1, now, soon, now_s, soon_s, caches)


def _bounded(load: float) -> float:
    return round(min(BUSIEST, max(QUIETEST, load)), 3)


def _load(caches: Sequence[CacheScore], parts: Sequence[float]) -> float:
    """The load that meets a read of `parts` from `caches`; that of the mean if they hold nothing."""
    total = sum(parts)
    met = sum((cache.load or 1.0) * part for cache, part in zip(caches, parts, strict=True))
    return met / total if total else 1.0


def _fraction(x: float) -> float:
    return round(min(1.0, max(0.0, x)), 6)


def _eq1(cluster: Cluster, volume_bytes: float, x: float, load: float) -> float:
    busy = dataclasses.replace(cluster, cache_bytes_s_per_node=cluster.cache_bytes_s_per_node / load)
    return round(float(processing_s(busy, volume_bytes, np.array([x]))[0]), 3)
