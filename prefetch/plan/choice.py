"""Choosing from ranked files within limits."""

from __future__ import annotations

import numpy as np

from prefetch.plan.items import FloatArray
from replay.planner import BoolArray, IntArray


def ranked(key: FloatArray, item: IntArray, wanted: BoolArray) -> IntArray:
    """Indices where `wanted`, highest key first; ties by item, so that a plan is reproducible."""
    index = np.flatnonzero(wanted)
    return index[np.lexsort((item[index], -key[index]))]


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
