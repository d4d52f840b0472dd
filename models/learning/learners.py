"""Learners, and LightGBM, whose models are stored and serve: a text, read as arrays that a kernel scores.

LightGBM and SciPy are loaded where they are used: a steward's host, which reads models, has neither.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from features.common.arrays import Float32Array, FloatArray, Ids, IntArray
from features.common.errors import ModelError
from replay.kernels import trees as kernels
from replay.kernels.trees import PART, Forest, Words

if TYPE_CHECKING:
    import lightgbm as lgb

CATEGORICAL = ("tier", "campaign")
_RISING = ("n_reads", "decayed_", "dataset_decayed_", "dataset_passes_")
_FALLING = ("recency_s", "dataset_recency_s")


class Scorer(Protocol):
    """Scores rows of a model matrix."""

    def score(self, x: pd.DataFrame) -> FloatArray:
        """One score per row; higher means likelier to be read."""


class Learner(Protocol):
    """A learning algorithm with its settings; it keeps nothing between fits."""

    @property
    def name(self) -> str:
        """The name in reports."""

    def fit(self, x: pd.DataFrame, y: FloatArray) -> Scorer:
        """Fit to labels `y` (0 or 1). The same input gives the same model."""

    @property
    def knobs(self) -> Mapping[str, float]:
        """The settings, for the record."""


@dataclasses.dataclass(frozen=True)
class WithKnobs:
    """Base of learners whose settings are their fields."""

    @property
    def knobs(self) -> Mapping[str, float]:
        """All settings except the name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "name"}


@dataclasses.dataclass(frozen=True)
class LightGBM(WithKnobs):
    """Gradient-boosted trees of LightGBM.

    `monotone`: more reads, or a shorter time since the last one, never lower the score of a file.
    `extra_trees`: thresholds of splits are drawn at random. `best_trees`: so many of the trees, the last
    ones, have the best thresholds nevertheless.
    """

    trees: int = 80
    best_trees: int = 0
    leaves: int = 31
    min_rows: int = 100
    rate: float = 0.06
    column_share: float = 0.5
    row_share: float = 0.7
    l2: float = 10.0
    monotone: bool = False
    extra_trees: bool = False
    seed: int = 1
    name: str = "lightgbm"

    def fit(self, x: pd.DataFrame, y: FloatArray) -> Trees:
        """Fit by binary log loss, with one thread (see `models.parallel`)."""
        return self._trees(self._data(x).set_label(y))

    def binned(self, x: pd.DataFrame) -> lgb.Dataset:
        """Rows for several fits: to find the bins takes as long as a fit of a few trees.

        Their columns are not bundled: LightGBM 4.7.0 writes past its memory where some rows of bundled
        columns are taken.
        """
        return self._data(x, enable_bundle=False)

    def _data(self, x: pd.DataFrame, **more: object) -> lgb.Dataset:
        import lightgbm as lgb  # noqa: PLC0415

        categorical = [name for name in CATEGORICAL if name in x.columns]
        parameters = self._parameters(list(x.columns)) | more
        return lgb.Dataset(x, categorical_feature=categorical, params=parameters).construct()

    def fit_some(self, x: lgb.Dataset, rows: IntArray, y: FloatArray) -> Trees:
        """Fit as `fit` does, to the rows of `binned` at ascending places `rows`, whose labels are `y`."""
        return self._trees(x.subset(rows.tolist()).construct().set_label(y))

    def _trees(self, data: lgb.Dataset) -> Trees:
        import lightgbm as lgb  # noqa: PLC0415

        columns, n_drawn = data.get_feature_name(), self.trees - self.best_trees
        is_drawn = lgb.reset_parameter(extra_trees=lambda tree: self.extra_trees and tree < n_drawn)
        booster = lgb.train(self._parameters(columns), data, self.trees, callbacks=[is_drawn])
        return Trees.of(str(booster.model_to_string()), columns)

    def _parameters(self, columns: Sequence[str]) -> dict[str, object]:
        parameters: dict[str, object] = {
            "objective": "binary",
            "num_leaves": self.leaves,
            "min_data_in_leaf": self.min_rows,
            "learning_rate": self.rate,
            "feature_fraction": self.column_share,
            "bagging_fraction": self.row_share,
            "bagging_freq": 1,
            "lambda_l2": self.l2,
            "extra_trees": self.extra_trees,
            "seed": self.seed,
            "deterministic": True,
            "force_col_wise": True,  # faster than by rows, for the same trees
            "verbosity": -1,
            "num_threads": 1,
        }
        if self.monotone:
            parameters["monotone_constraints"] = [
                1 if name.startswith(_RISING) else -1 if name in _FALLING else 0 for name in columns
            ]
        return parameters


@dataclasses.dataclass(frozen=True)
class Trees:
    """A LightGBM model as its text, scored by a kernel. `columns`: of the rows that it scores."""

    text: str
    columns: tuple[str, ...]

    @staticmethod
    def of(text: str, columns: Sequence[str]) -> Trees:
        """The model of `text` without what follows its trees. Raises ModelError if it is cut short."""
        return Trees(trees_of(text), tuple(columns))

    @functools.cached_property
    def _forest(self) -> Forest:
        return forest_of(self.text, self.columns)

    def score(self, x: pd.DataFrame) -> FloatArray:
        """Probabilities before calibration."""
        return probabilities(self._forest, x.to_numpy(dtype=np.float32))

    def importance(self) -> Mapping[str, float]:
        """Share of the total gain by column."""
        import lightgbm as lgb  # noqa: PLC0415

        gains = lgb.Booster(model_str=self.text).feature_importance("gain")
        total = float(gains.sum()) or 1.0
        return {name: float(gain) / total for name, gain in zip(self.columns, gains, strict=True)}


_END = "end of trees\n"
_TREE = re.compile(r"^Tree=\d+$", re.MULTILINE)
_CATEGORICAL_BIT, _DEFAULT_LEFT_BIT, _MISSING_SHIFT = 1, 2, 2
_RULES = np.array(
    [
        [kernels.NAN_IS_ZERO, kernels.ZERO_RIGHT, kernels.NAN_RIGHT],
        [kernels.NAN_IS_ZERO, kernels.ZERO_LEFT, kernels.NAN_LEFT],
    ]
)
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
    return kernels.join_forests([_tree(_fields(block)) for block in blocks])


def trees_of(text: str) -> str:
    """A model text without what follows its trees. Raises ModelError if it is none."""
    trees, end, _ = text.partition(_END)
    if not end:
        raise ModelError("the LightGBM model is cut short")
    return trees + end


def probabilities(forest: Forest, x: Float32Array) -> FloatArray:
    """What the model of `forest` says of each row of `x`, float32[n, columns]."""
    from scipy.special import expit  # noqa: PLC0415

    sums = np.empty(len(x))
    kernels.margins(forest, np.ascontiguousarray(x), kernels.new_block(forest), sums)
    return np.asarray(expit(sums), dtype=np.float64)


def _fields(block: str) -> Mapping[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _tree(fields: Mapping[str, str]) -> Forest:
    """One tree; every split has a plane of its own."""
    values = _floats(fields["leaf_value"])
    column, rule, threshold, first_word, n_words, words = _asked(fields)
    place, first, stop = _leaves(fields, values.size)
    n_parts = -(-values.size // PART)
    leaf = np.zeros((n_parts, PART))
    leaf[n_parts - 1 - place // PART, place % PART] = values
    below = [_bits(first - PART * part, stop - PART * part) for part in reversed(range(n_parts))]
    is_set = rule == kernels.CATEGORY
    splits = [np.flatnonzero(bits) for bits in below]
    splits = [np.concatenate([part[~is_set[part]], part[is_set[part]]]) for part in splits]
    first_split = np.cumsum([0, *(part.size for part in splits)], dtype=np.int32)
    order = np.concatenate(splits)
    return Forest(
        column=column,
        rule=rule,
        first_part=np.array([0, n_parts], np.int32),
        first_split=first_split,
        first_set=first_split[1:] - np.array([is_set[part].sum() for part in splits], np.int32),
        leaf=leaf,
        plane=order.astype(np.int32),
        threshold=threshold[order],
        right=~np.concatenate([bits[part] for bits, part in zip(below, splits, strict=True)]),
        first_word=first_word[order],
        n_words=n_words[order],
        words=words,
    )


def _asked(
    fields: Mapping[str, str],
) -> tuple[Ids, npt.NDArray[np.int8], Float32Array, Ids, Ids, Words]:
    """The comparison of each split of a tree: column, rule, threshold, and its words, as in `Forest`."""
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
    column = _ints(fields["split_feature"]).astype(np.int32)
    rule = np.where(is_set, kernels.CATEGORY, rule).astype(np.int8)
    return column, rule, _at_most(np.where(is_set, 0.0, threshold)), first_word, n_words, words


def _leaves(fields: Mapping[str, str], n_leaves: int) -> tuple[IntArray, IntArray, IntArray]:
    """The place of each leaf from the left, and for each split the range of leaves below its left child."""
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
