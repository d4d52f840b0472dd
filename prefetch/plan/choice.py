"""Choosing from ranked files within limits."""

from __future__ import annotations

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray


def best_first(key: FloatArray, last_use_s: IntArray, item: IntArray, wanted: BoolArray) -> IntArray:
    """Indices where `wanted`, highest key first; ties by last use, the newest first, then by item."""
    index = np.flatnonzero(wanted)
    return index[np.lexsort((item[index], -last_use_s[index], -key[index]))]


def worst_first(key: FloatArray, last_use_s: IntArray, item: IntArray, wanted: BoolArray) -> IntArray:
    """Indices where `wanted`, lowest key first; ties by last use, the oldest first, then by item."""
    return best_first(-key, -last_use_s, item, wanted)


def steady(order: IntArray, size_bytes: IntArray, placed: BoolArray, limit: int, slack: float) -> IntArray:
    """The head of `order` up to `limit` / (1 + `slack`) bytes, and those `placed` before up to `limit`.

    A file that is placed already thus keeps its place until it has fallen well behind those that get one.
    """
    inside = head(order, size_bytes, limit)
    n_best = head(order, size_bytes, int(limit / (1 + slack))).size
    stays = placed[inside]
    stays[:n_best] = True
    return inside[stays]


def head(order: IntArray, size_bytes: IntArray, limit: int) -> IntArray:
    """The longest head of `order` whose sizes sum to at most `limit`."""
    return order[: int(np.searchsorted(np.cumsum(size_bytes[order]), limit, side="right"))]


def within_groups(order: IntArray, size_bytes: IntArray, group: IntArray, limit: IntArray) -> IntArray:
    """`order` without what goes beyond its group's limit, counted in that order.

    `group`: code per index, below 0: of no group, never over; `limit`: bytes per code.
    """
    code = group[order]
    by_group = np.argsort(code, kind="stable")
    sizes = size_bytes[order][by_group]
    total = np.cumsum(sizes)
    codes = code[by_group]
    first = np.flatnonzero(np.diff(codes, prepend=codes[:1] - 1))
    before = np.repeat((total - sizes)[first], np.diff(np.append(first, codes.size)))
    fits = (codes < 0) | (total - before <= limit[codes])
    kept = np.empty(order.size, np.bool_)
    kept[by_group] = fits
    return order[kept]
