"""LightGBM's model text as arrays that a kernel scores, with LightGBM's own rules."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from features.arrays import Float32Array, FloatArray, IntArray
from replay.forest import CATEGORICAL, DEFAULT_LEFT, LEAF, Forest, joined, margins

_TREE = re.compile(r"^Tree=\d+$", re.MULTILINE)
_CATEGORICAL_BIT, _DEFAULT_LEFT_BIT, _MISSING_SHIFT = 1, 2, 2


def forest_of(text: str) -> Forest:
    """The trees of a model text, as LightGBM writes it or `checked_text` returns it.

    LightGBM: src/io/tree.cpp, `Tree::Tree(const char*)` and `Tree::NumericalDecision`.
    """
    _, *blocks = _TREE.split(text[: text.index("end of trees")])
    return joined([_tree(_fields(block)) for block in blocks])


def probabilities(forest: Forest, x: Float32Array) -> FloatArray:
    """What the model of `forest` says of each row of `x`, float32[n, columns]."""
    sums = np.empty(len(x))
    margins(forest, np.ascontiguousarray(x), sums)
    return np.asarray(expit(sums), dtype=np.float64)


def _fields(block: str) -> Mapping[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _tree(fields: Mapping[str, str]) -> Forest:
    n_leaves = int(fields["num_leaves"])
    n_splits = n_leaves - 1
    n_nodes = n_splits + n_leaves
    column = np.full(n_nodes, LEAF, np.int32)
    threshold = np.zeros(n_nodes)
    left, right = np.arange(n_nodes, dtype=np.int32), np.arange(n_nodes, dtype=np.int32)
    rule, missing, n_words = (
        np.zeros(n_nodes, np.int8),
        np.zeros(n_nodes, np.int8),
        np.zeros(n_nodes, np.int32),
    )
    words: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)
    threshold[n_splits:] = _floats(fields["leaf_value"])
    if n_splits:
        decision = _ints(fields["decision_type"])
        is_set = (decision & _CATEGORICAL_BIT) != 0
        column[:n_splits] = _ints(fields["split_feature"])
        threshold[:n_splits] = _floats(fields["threshold"])
        left[:n_splits] = _nodes(fields["left_child"], n_splits)
        right[:n_splits] = _nodes(fields["right_child"], n_splits)
        goes_left = (decision & _DEFAULT_LEFT_BIT) != 0
        rule[:n_splits] = is_set * CATEGORICAL | goes_left * DEFAULT_LEFT
        missing[:n_splits] = decision >> _MISSING_SHIFT & 3
        if is_set.any():
            edges = _ints(fields["cat_boundaries"])
            words = _ints(fields["cat_threshold"]).astype(np.uint32)
            of = threshold[:n_splits][is_set].astype(np.int64)
            threshold[:n_splits][is_set] = edges[of]
            n_words[:n_splits][is_set] = edges[of + 1] - edges[of]
    root = np.zeros(1, np.int32)
    return Forest(root, column, threshold, left, right, rule, missing, n_words, words)


def _nodes(text: str, n_splits: int) -> IntArray:
    """Indices of children; LightGBM writes leaf k as -1 - k, here leaves come behind the splits."""
    child = _ints(text)
    return np.where(child < 0, n_splits - 1 - child, child)


def _floats(text: str) -> FloatArray:
    return np.array(text.split(" "), np.float64)


def _ints(text: str) -> IntArray:
    return np.array(text.split(" "), np.int64)
