"""Choosing from ranked files, or from whole datasets, within limits in bytes."""

from __future__ import annotations

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
