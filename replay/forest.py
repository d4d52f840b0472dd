"""Gradient-boosted trees as flat arrays, scored by a kernel: a ladder of one binary model per horizon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.arrays import Float32Array, FloatArray
from features.jit import bare, kernel
from features.stream.state import Ids

LEAF = -1
DEFAULT_LEFT, CATEGORICAL = 1, 2
NO_MISSING, ZERO_MISSING, NAN_MISSING = 0, 1, 2
ZERO = 1e-35
"""LightGBM takes a smaller magnitude for zero."""
MOST_CATEGORIES = 2.0**31
ROWS_AT_ONCE = 16
"""Rows that go through a tree side by side, so that none waits for another's memory or branches."""


class Forest(NamedTuple):
    """Trees of one model, or of several behind each other.

    `root`: int32[t], the first node of each tree. Of each of `n` nodes: `column` int32, -1 in a leaf;
    `threshold` float64, the leaf's value in a leaf; `left`, `right` int32, in a leaf itself; `rule` int8,
    DEFAULT_LEFT | CATEGORICAL; `missing` int8. A categorical node's `threshold` is the index of its first
    word in `words` (uint32, the set of categories that go left), and `n_words` int32 their number.
    """

    root: Ids
    column: Ids
    threshold: FloatArray
    left: Ids
    right: Ids
    rule: npt.NDArray[np.int8]
    missing: npt.NDArray[np.int8]
    n_words: Ids
    words: npt.NDArray[np.uint32]


class Ladder(NamedTuple):
    """A model per horizon: trees first_tree[k] … first_tree[k + 1] - 1 of `forest` give P(read within it).

    `horizon_s`: float64[h], ascending; `first_tree`: int32[h + 1].
    """

    forest: Forest
    first_tree: Ids
    horizon_s: FloatArray


def joined(forests: Sequence[Forest]) -> Forest:
    """The trees of several forests in one, in order."""
    nodes = np.cumsum([0, *(f.column.size for f in forests)])
    words = np.cumsum([0, *(f.words.size for f in forests)])

    def moved(values: Ids, by: int) -> Ids:
        return (values + by).astype(np.int32)

    thresholds = []
    for forest, by in zip(forests, words, strict=False):
        is_set = (forest.rule & CATEGORICAL) != 0
        thresholds.append(np.where(is_set, forest.threshold + by, forest.threshold))
    return Forest(
        root=np.concatenate([moved(f.root, by) for f, by in zip(forests, nodes, strict=False)]),
        column=np.concatenate([f.column for f in forests]),
        threshold=np.concatenate(thresholds),
        left=np.concatenate([moved(f.left, by) for f, by in zip(forests, nodes, strict=False)]),
        right=np.concatenate([moved(f.right, by) for f, by in zip(forests, nodes, strict=False)]),
        rule=np.concatenate([f.rule for f in forests]),
        missing=np.concatenate([f.missing for f in forests]),
        n_words=np.concatenate([f.n_words for f in forests]),
        words=np.concatenate([f.words for f in forests]),
    )


def ladder(forests: Sequence[Forest], horizons_s: Sequence[float]) -> Ladder:
    """The ladder of one forest per horizon."""
    first = np.cumsum([0, *(f.root.size for f in forests)]).astype(np.int32)
    return Ladder(joined(forests), first, np.array(horizons_s, np.float64))


@bare
def margin(forest: Forest, first: int, stop: int, x: Float32Array) -> float:
    """The sum of trees `first` … `stop` - 1 for one row, float32[columns]."""
    total = 0.0
    for t in range(first, stop):
        node = forest.root[t]
        while forest.column[node] != LEAF:
            node = forest.left[node] if _goes_left(forest, node, x) else forest.right[node]
        total += forest.threshold[node]
    return total


@kernel
def margins(forest: Forest, x: Float32Array, out: FloatArray) -> None:
    """Write the sum of all trees for each row of `x`, float32[n, columns], to `out`, float64[n]."""
    node = np.empty(ROWS_AT_ONCE, np.int32)
    for start in range(0, x.shape[0], ROWS_AT_ONCE):
        n_rows = min(ROWS_AT_ONCE, x.shape[0] - start)
        out[start : start + n_rows] = 0
        for root in forest.root:
            node[:] = root
            has_moved = True
            while has_moved:
                has_moved = False
                for i in range(n_rows):
                    at = node[i]
                    left, right = forest.left[at], forest.right[at]
                    node[i] = right + _goes_left(forest, at, x[start + i]) * (left - right)  # no branch
                    has_moved |= node[i] != at
            for i in range(n_rows):
                out[start + i] += forest.threshold[node[i]]


@bare
def hit_rate(ladder: Ladder, x: Float32Array) -> float:
    """The best over horizons of: chance of a read, over the expected time until it or the horizon; per s."""
    best, before, waited, last_s = 0.0, 0.0, 0.0, 0.0
    for k in range(ladder.horizon_s.size):
        sum_of_trees = margin(ladder.forest, ladder.first_tree[k], ladder.first_tree[k + 1], x)
        chance = max(before, 1 / (1 + np.exp(-sum_of_trees)))
        waited += (ladder.horizon_s[k] - last_s) * (1 - (chance + before) / 2)
        best = max(best, chance / waited)
        before, last_s = chance, ladder.horizon_s[k]
    return best


@bare
def _goes_left(forest: Forest, node: int, x: Float32Array) -> bool:
    value = float(x[forest.column[node]])
    rule, missing = forest.rule[node], forest.missing[node]
    if rule & CATEGORICAL:
        return _is_member(forest, node, value)
    if np.isnan(value) and missing != NAN_MISSING:
        value = 0.0
    if (missing == NAN_MISSING and np.isnan(value)) or (missing == ZERO_MISSING and abs(value) <= ZERO):
        return bool(rule & DEFAULT_LEFT)
    return bool(value <= forest.threshold[node])


@bare
def _is_member(forest: Forest, node: int, value: float) -> bool:
    if not 0 <= value < MOST_CATEGORIES:
        return False
    category = int(value)
    if category >> 5 >= forest.n_words[node]:
        return False
    word = forest.words[int(forest.threshold[node]) + (category >> 5)]
    return bool((word >> np.uint32(category & 31)) & np.uint32(1))
