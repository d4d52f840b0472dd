"""Choosing from ranked files, or from whole datasets, within limits in bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from prefetch.plan.scores import Files, Scores
from prefetch.plan.value import ScoredFiles


def best_first(key: FloatArray, last_use_s: IntArray, item: IntArray, mask: BoolArray) -> IntArray:
    """Indices where `mask`, highest key first; ties by last use, the newest first, then by item."""
    index = np.flatnonzero(mask)
    return index[np.lexsort((item[index], -last_use_s[index], -key[index]))]


def worst_first(key: FloatArray, last_use_s: IntArray, item: IntArray, mask: BoolArray) -> IntArray:
    """Indices where `mask`, lowest key first; ties by last use, the oldest first, then by item."""
    return best_first(-key, -last_use_s, item, mask)


def steady(order: IntArray, size_bytes: IntArray, placed: BoolArray, limit: int, slack: float) -> IntArray:
    """The first of `order` within `limit` bytes; beyond `limit` / (1 + `slack`) only those `placed` already.

    So a file that an earlier plan placed keeps its place until it is well behind others.
    """
    within = head(order, size_bytes, limit)
    stays = placed[within]
    stays[: head(order, size_bytes, int(limit / (1 + slack))).size] = True
    return within[stays]


def head(order: IntArray, size_bytes: IntArray, limit: int) -> IntArray:
    """The first of `order` whose sizes sum to at most `limit` bytes."""
    return order[: int(np.searchsorted(np.cumsum(size_bytes[order]), limit, side="right"))]


def within_groups(order: IntArray, size_bytes: IntArray, group: IntArray, limit: IntArray) -> IntArray:
    """`order` without the files at which their group, counted in that order, exceeds its limit.

    `group`: a code per index, below 0 if it is in no group; `limit`: bytes per code.
    """
    code = group[order]
    by_group = np.argsort(code, kind="stable")
    sizes = size_bytes[order][by_group]
    total = np.cumsum(sizes)
    codes = code[by_group]
    first = np.flatnonzero(np.diff(codes, prepend=codes[:1] - 1))
    before = np.repeat((total - sizes)[first], np.diff(np.append(first, codes.size)))
    fits = (codes < 0) | (total - before <= limit[codes])
    within = np.empty(order.size, np.bool_)
    within[by_group] = fits
    return order[within]


def fraction_bytes(scores: Scores, files: Files, fraction: float) -> IntArray:
    """Bytes of each dataset (by code) that are worth caching: `fraction` of the bytes of its candidates."""
    code = files.dataset[scores.item]
    member = code >= 0
    size = np.zeros(1 + int(files.dataset.max(initial=-1)), np.int64)
    np.add.at(size, code[member], scores.size_bytes[member])
    return (fraction * size).astype(np.int64)


def held_bytes(disk: ScoredFiles, files: Files, n_datasets: int) -> IntArray:
    """Bytes on disk of each dataset (by code)."""
    code = files.dataset[disk.item]
    held = np.zeros(n_datasets, np.int64)
    np.add.at(held, code[code >= 0], disk.size_bytes[code >= 0])
    return held


class FetchSelection(NamedTuple):
    """Candidates to fetch, bool[n], and the `key` that ranks them; `as_whole`: fetched as a whole dataset."""

    selected: BoolArray
    key: FloatArray
    as_whole: BoolArray

    def order(self, candidates: ScoredFiles, files: Files) -> IntArray:
        """Indices of the selected files, highest key first; the files of a whole dataset stay together."""
        index = np.flatnonzero(self.selected)
        unit = np.where(self.as_whole, files.dataset[candidates.item], -1)[index]
        keys = (candidates.item, -candidates.last_use_s, -candidates.density)
        return index[np.lexsort((*(key[index] for key in keys), unit, -self.key[index]))]


def by_the_file(candidates: ScoredFiles, likely: BoolArray) -> FetchSelection:
    """The likely files one by one, each ranked by its own density."""
    return FetchSelection(likely, candidates.density, np.zeros(likely.size, np.bool_))


def completed(
    candidates: ScoredFiles, files: Files, usable: BoolArray, likely: BoolArray, bonus: float
) -> FetchSelection:
    """The likely files, and the rest of their datasets where a whole dataset is worth more.

    A whole dataset ranks by (1 + `bonus`) times the mean density of its usable files. One with a likely file
    is fetched whole, unless its best file alone ranks higher.
    """
    code = files.dataset[candidates.item]
    n = 1 + int(code.max(initial=-1))
    inside = usable & (code >= 0)
    n_likely = np.bincount(code[inside & likely], minlength=n)
    size = np.bincount(code[inside], weights=candidates.size_bytes[inside], minlength=n)
    worth = candidates.density * candidates.size_bytes
    total = np.bincount(code[inside], weights=worth[inside], minlength=n)
    as_one = (1 + bonus) * total / np.maximum(size, 1)
    best = np.zeros(n)
    np.maximum.at(best, code[inside], candidates.density[inside])
    as_whole = inside & np.append((n_likely > 0) & (as_one >= best), False)[code]
    key = np.where(as_whole, np.append(as_one, 0.0)[code], candidates.density)
    return FetchSelection(likely | as_whole, key, as_whole)


def whole(
    order: IntArray, candidates: ScoredFiles, files: Files, as_whole: BoolArray, limit: int
) -> IntArray:
    """The first of `order` within `limit` bytes, without a whole dataset that the limit would cut."""
    within = head(order, candidates.size_bytes, limit)
    rest = order[within.size :]
    if not rest.size or not as_whole[rest[0]]:
        return within
    cut = files.dataset[candidates.item[rest[0]]]
    in_cut: BoolArray = as_whole[within] & (files.dataset[candidates.item[within]] == cut)
    return within[~in_cut]
