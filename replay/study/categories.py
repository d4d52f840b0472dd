"""The category of each file, and the table of them: what a cache saves for each, and whether to admit it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.common.names import MAX_NAME_CHARS, RULES, UNFIT_RE2
from replay.study.origins import coded
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

EVERYTHING, OTHER, REST = "all", "other", "the rest"
MAX_CATEGORIES = 20
_SCOPE = "^[^/:]*:"


class Labels(NamedTuple):
    """A code per file (int32[m]) and the name of each code."""

    code: ItemArray
    names: list[str]


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
        np.array([v == verdict for v in of_code])[labels.code] for verdict in (DO_NOT_CACHE, CACHE_SMALL)
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


def categories(trace: Trace, details: pa.Table) -> Labels:
    """Each file's category: the category in `details`, else the tier there, else the tier in its name.

    If no file has any of these, it is the dataset. `details`: one row per access, with columns category, tier
    and dataset if the trace has them; a file's first known value counts. A file of unknown category is
    `other`, or `all` if every file is. All but the 20 categories with most bytes requested become `the rest`.
    """
    value = _known(trace, details, ("category", "tier"))
    if trace.names is not None and value.null_count:
        nameless = pc.is_null(value)
        value = pc.replace_with_mask(value, nameless, tiers_of(trace.names.filter(nameless)))
    if value.null_count == trace.n_items:
        value = _known(trace, details, ("dataset",))
    value = value.fill_null(EVERYTHING if value.null_count == trace.n_items else OTHER)
    coded = value.dictionary_encode()
    return _largest(trace, Labels(coded.indices.to_numpy().astype(np.int32), coded.dictionary.to_pylist()))


def tiers_of(names: pa.StringArray) -> pa.StringArray:
    """The data tier in each name or did, or null: the rules of `features.common.names` for whole columns."""
    bare = pc.replace_substring_regex(names.cast(pa.string()), _SCOPE, "")
    unfit = pc.match_substring_regex(bare, UNFIT_RE2)
    fit = pc.and_(pc.invert(unfit), pc.less_equal(pc.utf8_length(bare), MAX_NAME_CHARS))
    left = pc.if_else(fit, bare, None)
    tier_of = pa.nulls(len(names), pa.string())
    for rule in RULES:
        matches = pc.match_substring_regex(left, rule.pattern).fill_null(False)
        if rule.tier:
            tier = pc.replace_substring_regex(left, rule.pattern, rf"\{rule.tier}")
            tier_of = pc.if_else(matches, tier, tier_of)
        left = pc.if_else(matches, None, left)
    return pc.if_else(pc.equal(tier_of, ""), None, tier_of)


def _known(trace: Trace, details: pa.Table, roles: Sequence[str]) -> pa.StringArray:
    """The first of `roles` that is known of each file."""
    known = [_of_files(trace, details[role]) for role in roles if role in details.column_names]
    return pc.coalesce(*known) if known else pa.nulls(trace.n_items, pa.string())


def _of_files(trace: Trace, column: pa.ChunkedArray) -> pa.StringArray:
    encoded = coded(column)
    code: IntArray = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
    known = np.flatnonzero(code >= 0)[::-1]
    of_file = np.full(trace.n_items, -1, np.int64)
    # With repeated indices the last assignment stays, which in reversed order is the first access.
    of_file[trace.item[known]] = code[known]
    index = pa.array(of_file, mask=of_file < 0)
    return encoded.dictionary.cast(pa.string()).take(index)


def _largest(trace: Trace, labels: Labels) -> Labels:
    if len(labels.names) <= MAX_CATEGORIES:
        return labels
    size = trace.size_bytes[trace.item]
    requested = np.bincount(labels.code[trace.item], weights=size, minlength=len(labels.names))
    largest = np.argsort(-requested, kind="stable")[:MAX_CATEGORIES]
    renumbered = np.full(len(labels.names), MAX_CATEGORIES, np.int32)
    renumbered[largest] = np.arange(MAX_CATEGORIES)
    return Labels(renumbered[labels.code], [labels.names[code] for code in largest] + [REST])
