"""LightGBM's model text as arrays that a kernel scores, with LightGBM's own rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from features.common.arrays import Float32Array, FloatArray, Ids, IntArray
from features.common.errors import ModelError
from replay.trees.forest import (
    CATEGORY,
    NAN_IS_ZERO,
    NAN_LEFT,
    NAN_RIGHT,
    PART,
    ZERO_LEFT,
    ZERO_RIGHT,
    Forest,
    Words,
    joined,
    margins,
    new_block,
    slots,
)

_END = "end of trees\n"
_TREE = re.compile(r"^Tree=\d+$", re.MULTILINE)
_CATEGORICAL_BIT, _DEFAULT_LEFT_BIT, _MISSING_SHIFT = 1, 2, 2
_RULES = np.array([[NAN_IS_ZERO, ZERO_RIGHT, NAN_RIGHT], [NAN_IS_ZERO, ZERO_LEFT, NAN_LEFT]])
"""By whether missing values go left, and by which values LightGBM takes for missing: none, zero, NaN."""


def forest_of(text: str, columns: Sequence[str]) -> Forest:
    """The trees of a model text of `columns`.

    LightGBM: src/io/tree.cpp, `Tree::Tree(const char*)` and `Tree::NumericalDecision`. The kernels follow the
    arrays without looking at their bounds: a text must be what was trained, which its version's digest shows.
    Raises ModelError for a text of other columns.
    """
    head, *blocks = _TREE.split(trees_of(text))
    if f"\nfeature_names={' '.join(columns)}\n" not in head:
        raise ModelError(f"the LightGBM model is not of the columns {', '.join(columns)[:200]}")
    return joined([_tree(_fields(block)) for block in blocks])


def trees_of(text: str) -> str:
    """A model text without what follows its trees. Raises ModelError if it is none."""
    trees, end, _ = text.partition(_END)
    if not end:
        raise ModelError("the LightGBM model is cut short")
    return trees + end


def probabilities(forest: Forest, x: Float32Array) -> FloatArray:
    """What the model of `forest` says of each row of `x`, float32[n, columns]."""
    sums = np.empty(len(x))
    margins(forest, np.ascontiguousarray(x), new_block(forest), sums)
    return np.asarray(expit(sums), dtype=np.float64)


def _fields(block: str) -> Mapping[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _tree(fields: Mapping[str, str]) -> Forest:
    """One tree; every split has a plane of its own."""
    values = _floats(fields["leaf_value"])
    asked = _asked(fields)
    place, first, stop = _leaves(fields, values.size)
    n_parts = -(-values.size // PART)
    leaf = np.zeros((n_parts, PART))
    leaf[n_parts - 1 - place // PART, slots()[place % PART]] = values
    below = [_bits(first - PART * part, stop - PART * part) for part in reversed(range(n_parts))]
    is_set = asked.rule == CATEGORY
    splits = [np.flatnonzero(bits) for bits in below]
    splits = [np.concatenate([part[~is_set[part]], part[is_set[part]]]) for part in splits]
    first_split = np.cumsum([0, *(part.size for part in splits)], dtype=np.int32)
    order = np.concatenate(splits)
    return Forest(
        column=asked.column,
        rule=asked.rule,
        first_part=np.array([0, n_parts], np.int32),
        first_split=first_split,
        first_set=first_split[1:] - np.array([is_set[part].sum() for part in splits], np.int32),
        leaf=leaf,
        plane=order.astype(np.int32),
        threshold=asked.threshold[order],
        right=~np.concatenate([bits[part] for bits, part in zip(below, splits, strict=True)]),
        first_word=asked.first_word[order],
        n_words=asked.n_words[order],
        words=asked.words,
    )


class _Asked(NamedTuple):
    """What each split of a tree compares, as in `Forest`."""

    column: Ids
    rule: npt.NDArray[np.int8]
    threshold: Float32Array
    first_word: Ids
    n_words: Ids
    words: Words


def _asked(fields: Mapping[str, str]) -> _Asked:
    kind, threshold = _ints(fields["decision_type"]), _floats(fields["threshold"])
    rule = _RULES[(kind & _DEFAULT_LEFT_BIT) >> 1, kind >> _MISSING_SHIFT & 3]
    first_word, n_words = np.zeros(kind.size, np.int32), np.zeros(kind.size, np.int32)
    words: Words = np.zeros(0, np.uint32)
    is_set = (kind & _CATEGORICAL_BIT) != 0
    if is_set.any():
        edges, which = _ints(fields["cat_boundaries"]), threshold[is_set].astype(np.int64)
        first_word[is_set] = edges[which] + which  # each set before has a zero behind it
        n_words[is_set] = edges[which + 1] - edges[which]
        words = np.insert(_ints(fields["cat_threshold"]).astype(np.uint32), edges[1:], 0)
    return _Asked(
        column=_ints(fields["split_feature"]).astype(np.int32),
        rule=np.where(is_set, CATEGORY, rule).astype(np.int8),
        threshold=_at_most(np.where(is_set, 0.0, threshold)),
        first_word=first_word,
        n_words=n_words,
        words=words,
    )


def _leaves(fields: Mapping[str, str], n_leaves: int) -> tuple[IntArray, IntArray, IntArray]:
    """The place of each leaf, from the left; for each split the first place below its left child, and the
    first behind those.
    """
    children = np.column_stack([_ints(fields["left_child"]), _ints(fields["right_child"])]).tolist()
    n_below = [1] * n_leaves + [0] * len(children)  # leaf k, written -1 - k, is at n_leaves - 1 - k
    at = [0] * len(n_below)
    for split in reversed(range(len(children))):
        n_below[n_leaves + split] = sum(n_below[n_leaves + child] for child in children[split])
    for split, (left, right) in enumerate(children):
        at[n_leaves + left] = at[n_leaves + split]
        at[n_leaves + right] = at[n_leaves + split] + n_below[n_leaves + left]
    first = np.array(at[n_leaves:], np.int64)
    n_left = np.array([n_below[n_leaves + left] for left, _ in children], np.int64)
    return np.array(at[:n_leaves][::-1], np.int64), first, first + n_left


def _bits(first: IntArray, stop: IntArray) -> Words:
    """Words with the bits `first` … `stop` - 1 set, those of them that a word has."""
    low, high = (np.uint64(1) << np.clip(at, 0, PART).astype(np.uint64) for at in (first, stop))
    return (high - low).astype(np.uint32)


def _at_most(threshold: FloatArray) -> Float32Array:
    """The largest float32 up to each threshold: a float32 is at most the one if it is at most the other."""
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)


def _floats(text: str) -> FloatArray:
    return np.array(text.split(), np.float64)


def _ints(text: str) -> IntArray:
    return np.array(text.split(), np.int64)
