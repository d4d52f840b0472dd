"""The category table: what a cache saves for each category of files, and whether to admit it."""

from __future__ import annotations

import dataclasses

import numpy as np

from features.common.arrays import BoolArray
from replay.study.labels import Labels
from replay.study.use import Use, lru_age_s, total_by
from replay.study.verdicts import (
    CACHE,
    CACHE_SMALL,
    DO_NOT_CACHE,
    Sums,
    Thresholds,
    Verdict,
    judged,
    never_pays,
)
from replay.trace import ItemArray, Trace


@dataclasses.dataclass(frozen=True)
class Category:
    """One category of files under LRU: sums over its files that were read, and the verdict."""

    name: str
    sums: Sums
    verdict: Verdict
    reason: str


def never_paying(use: Use, labels: Labels, thresholds: Thresholds) -> BoolArray:
    """Which files have a category that does not pay in any cache, bool[m]."""
    never = [
        whole.accesses > 0 and never_pays(whole, small, thresholds)
        for whole, small in _sums(use, labels, thresholds)
    ]
    return np.array(never, np.bool_)[labels.code]


def category_table(
    use: Use, labels: Labels, thresholds: Thresholds, *, cleared: Use | None = None
) -> list[Category]:
    """Every category that was read, by descending bytes requested: its sums under `use`, and its verdict.

    `cleared`: the same cache without the files of `never_paying`; the other categories are judged by it.
    None if there are no such files.
    """
    judge = use if cleared is None else cleared
    age_s = lru_age_s(judge)
    rows = [
        Category(name, whole, *judged(*cleared_sums, thresholds, lru_age_s=age_s))
        for name, (whole, _), cleared_sums in zip(
            labels.names, _sums(use, labels, thresholds), _sums(judge, labels, thresholds), strict=True
        )
        if whole.accesses
    ]
    return sorted(rows, key=lambda row: -row.sums.requested_bytes)


def refused(trace: Trace, labels: Labels, table: list[Category], thresholds: Thresholds) -> BoolArray:
    """Which files `table` says not to cache, bool[m]; never those of a category that was not read."""
    verdicts = {row.name: row.verdict for row in table}
    of_code = [verdicts.get(name, CACHE) for name in labels.names]
    never, if_small = (
        np.array([v == one for v in of_code])[labels.code] for one in (DO_NOT_CACHE, CACHE_SMALL)
    )
    out: BoolArray = never | (if_small & (trace.size_bytes > thresholds.small_file_bytes))
    return out


def _sums(use: Use, labels: Labels, thresholds: Thresholds) -> list[tuple[Sums, Sums]]:
    """Sums per category: over all its files, and over its small ones."""
    is_small = use.trace.size_bytes <= thresholds.small_file_bytes
    small = np.where(is_small, labels.code, np.int32(-1))
    return list(zip(_summed(use, labels.code, labels), _summed(use, small, labels), strict=True))


def _summed(use: Use, code: ItemArray, labels: Labels) -> list[Sums]:
    read = (use.accesses > 0).astype(np.int64)
    per_file = (
        use.accesses,
        read,
        use.trace.size_bytes * read,
        use.requested_bytes,
        use.hits,
        use.hit_bytes,
        use.inflow_bytes,
    )
    totals = (total_by(code, amount, len(labels.names)).tolist() for amount in per_file)
    return [Sums(*row) for row in zip(*totals, strict=True)]
