"""Orders of files, and the part of an order that fits into so many bytes."""

import numpy as np

from features.common.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from features.common.jit import bare, inner

FEW = 64
"""So many files of equal keys are put in order one after the other, more by sorting."""


def best_first(key: FloatArray, last_use_s: IntArray, item: IntArray, mask: BoolArray) -> IntArray:
    """Indices where `mask`, highest key first; ties by last use, the newest first, then by item."""
    index = np.flatnonzero(mask)
    order = index[np.argsort(-key[index])]
    ties = _order_few(order, key[order], last_use_s, item)
    if not ties.size:
        return order
    # Models give thousands of files the same chance: these are put in order by one number, which is faster.
    among = order[ties]
    equal, use_s = key[among], last_use_s[among]
    group = np.append(0, np.cumsum(equal[1:] != equal[:-1]))
    newest_s, oldest_s = int(use_s.max()), int(use_s.min())
    if (newest_s - oldest_s + 1) * (int(group[-1]) + 1) >= 2**62:
        order[ties] = among[np.lexsort((item[among], -use_s, group))]
        return order
    rank = group * (newest_s - oldest_s + 1) + newest_s - use_s
    at = np.argsort(rank)
    among, rank = among[at], rank[at]
    rest = _order_few(among, rank, last_use_s, item)
    among[rest] = among[rest][np.lexsort((item[among[rest]], rank[rest]))]
    order[ties] = among
    return order


def _order_few(
    order: IntArray, ranked: FloatArray | IntArray, last_use_s: IntArray, item: IntArray
) -> IntArray:
    """Order ties of few files in `order`, whose keys are `ranked`; the places of ties of more than `FEW`."""
    is_left = np.zeros(order.size, np.bool_)
    _order_ties(order, ranked, last_use_s, item, is_left)
    return np.flatnonzero(is_left)


@bare
def _order_ties(
    order: IntArray, ranked: FloatArray | IntArray, last_use_s: IntArray, item: IntArray, is_left: BoolArray
) -> None:
    """Order the ties in `order`, whose keys are `ranked`; those of more than `FEW` files go to `is_left`."""
    start = 0
    for stop in range(1, order.size + 1):
        if stop < order.size and ranked[stop] == ranked[start]:
            continue
        if stop - start > FEW:
            is_left[start:stop] = True
        else:
            for moved in range(start + 1, stop):
                file, place = order[moved], moved
                while place > start and _is_before(file, order[place - 1], last_use_s, item):
                    order[place] = order[place - 1]
                    place -= 1
                order[place] = file
        start = stop


@inner
def _is_before(file: int, other: int, last_use_s: IntArray, item: IntArray) -> bool:
    if last_use_s[file] != last_use_s[other]:
        return bool(last_use_s[file] > last_use_s[other])
    return bool(item[file] < item[other])


def steady(order: IntArray, size_bytes: IntArray, placed: BoolArray, limit: int, slack: float) -> IntArray:
    """The first of `order` within `limit` bytes; beyond `limit` / (1 + `slack`) only those `placed`."""
    total = np.cumsum(size_bytes[order])
    n_within, n_near = np.searchsorted(total, [limit, int(limit / (1 + slack))], side="right")
    within = order[:n_within]
    stays = placed[within]
    stays[:n_near] = True
    return within[stays]


def head(order: IntArray, size_bytes: IntArray, limit: int) -> IntArray:
    """The first of `order` whose sizes sum to at most `limit` bytes."""
    return order[: int(np.searchsorted(np.cumsum(size_bytes[order]), limit, side="right"))]


def within_groups(order: IntArray, size_bytes: IntArray, group: AnyIntArray, limit: IntArray) -> IntArray:
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
