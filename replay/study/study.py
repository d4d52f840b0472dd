"""The whole study of one trace and one cache."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from features.results import LRU
from replay.comparison import BOUND, Candidates, compare
from replay.config import CacheConfig
from replay.curve import Curve, lru_curve
from replay.result import Result
from replay.study.benefit import BenefitModel, Cost, Region, cost
from replay.study.categories import (
    Category,
    Labels,
    Thresholds,
    categories,
    category_table,
    never_paying,
    refused,
)
from replay.study.use import (
    HitsByAge,
    Hotness,
    Origin,
    Part,
    Ranks,
    Sizes,
    Use,
    activities,
    hits_by_age,
    hotness,
    lru_age_s,
    origins,
    ranks,
    reads,
    replayed,
    replayed_without,
    sizes,
)
from replay.trace import Trace

CAPACITY_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Capacities at which clairvoyant and bound are shown, as multiples of the cache's."""

OnDone = Callable[[str], None]
"""Called with what has just been computed."""


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """The cache to study, thresholds of verdicts, regions, and the benefit model."""

    cache: CacheConfig
    thresholds: Thresholds
    regions: Sequence[Region]
    model: BenefitModel


class Ideal(NamedTuple):
    """Byte hit ratios at one capacity of LRU, and of policies that know the future."""

    capacity_bytes: int
    lru: float
    clairvoyant: float
    bound: float


class Benefit(NamedTuple):
    """Costs of the jobs: without a cache, with it, and with it if it admits only what the verdicts say.

    `known_share`: of the bytes requested, those whose origin's distance is known; only the jobs that read
    those are counted.
    """

    known_share: float
    direct: Cost
    cached: Cost
    by_verdict: Cost | None


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """Everything that the page shows; each part is documented where it is computed.

    `by_verdict`: the same cache if it admits only what the verdicts say; None if that is everything.
    `benefit`: None if no origin's distance is known.
    """

    config: StudyConfig
    use: Use
    result: Result
    lru_age_s: int | None
    categories: list[Category]
    by_verdict: Use | None
    sizes: Sizes
    hotness: list[Hotness]
    ranks: Ranks
    hits_by_age: HitsByAge
    curve: Curve
    ideal: list[Ideal]
    origins: list[Origin]
    activities: list[Part]
    benefit: Benefit | None


def study(
    trace: Trace, details: pa.Table, config: StudyConfig, *, on_done: OnDone = lambda what: None
) -> Study:
    """The study of `trace`, files whole; `details`: a row per access. Raises ConfigError, InputError."""
    whole = dataclasses.replace(trace, read_bytes=None)
    use, result = replayed(whole, config.cache)
    on_done("the cache")
    labels = categories(whole, details)
    table, by_verdict = _judge_categories(use, labels, config)
    on_done("categories")
    curve = lru_curve(whole)
    on_done("the curve")
    ideal = _ideal(whole, curve, config.cache.capacity_bytes)
    on_done("the bound")
    regions = origins(use, details, config.regions)
    return Study(
        config=config,
        use=use,
        result=result,
        lru_age_s=lru_age_s(use),
        categories=table,
        by_verdict=by_verdict,
        sizes=sizes(use),
        hotness=hotness(use),
        ranks=ranks(use),
        hits_by_age=hits_by_age(use),
        curve=curve,
        ideal=ideal,
        origins=regions,
        activities=activities(use, details),
        benefit=_benefit(regions, by_verdict, details, config),
    )


def _judge_categories(use: Use, labels: Labels, config: StudyConfig) -> tuple[list[Category], Use | None]:
    """The category table, and the cache if it admits only what the verdicts say."""
    replay = partial(replayed_without, use.trace, config.cache)
    never_pays = never_paying(use, labels, config.thresholds)
    cleared = replay(never_pays) if never_pays.any() else None
    table = category_table(use, labels, config.thresholds, cleared=cleared)
    is_refused = refused(use.trace, labels, table, config.thresholds)
    if not is_refused.any():
        return table, None
    return table, cleared if (is_refused == never_pays).all() else replay(is_refused)


def _ideal(trace: Trace, curve: Curve, capacity_bytes: int) -> list[Ideal]:
    footprint = trace.footprint_bytes
    sizes = sorted({max(1, min(int(factor * capacity_bytes), footprint)) for factor in CAPACITY_FACTORS})
    first = curve.exact_from_bytes  # the curve is none of LRU below it, so that LRU is replayed
    candidates = [
        Candidates(size, dict.fromkeys([*([LRU] if size < first else []), "clairvoyant", BOUND]))
        for size in sizes
    ]
    ideal = []
    for at in compare(trace, candidates):
        shares = {LRU: curve.byte_hit_ratio_at(at.capacity_bytes)}
        shares |= {name: row.result.byte_hit_ratio for name, row in at.rows.items()}
        ideal.append(Ideal(at.capacity_bytes, *shares.values()))
    return ideal


def _benefit(
    regions: Sequence[Origin], by_verdict: Use | None, details: pa.Table, config: StudyConfig
) -> Benefit | None:
    counted, share = _of_known_distance(regions)
    if not counted:
        return None
    lru = reads(counted)
    selected = None
    if by_verdict is not None:
        counted, _ = _of_known_distance(origins(by_verdict, details, config.regions))
        selected = cost(reads(counted), config.model)
    return Benefit(share, cost(lru.direct, config.model), cost(lru, config.model), selected)


def _of_known_distance(regions: Sequence[Origin]) -> tuple[list[Origin], float]:
    """The regions whose distance is known, and their share of the bytes requested."""
    known = [region for region in regions if region.rtt_ms is not None]
    total = sum(region.requested_bytes for region in regions)
    return known, sum(region.requested_bytes for region in known) / max(1, total)
