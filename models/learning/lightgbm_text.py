"""LightGBM's model text, checked before LightGBM reads it.

It follows sizes and indices of the text as they are: a text cut short ends the process, a forged one reads
outside its arrays. So what reaches it must be a text that this package could have written: one binary
output, constant leaves, every index inside its array, every child behind its parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from features.common.arrays import FloatArray, IntArray
from features.common.errors import ModelError

_END = "end of trees\n"
_MAX_LEAVES = 1 << 17
_INT, _FLOAT = r"-?\d{1,10}", r"\d{1,20}(?:\.\d{1,20})?(?:e[+-]\d{1,3})?"
_N_INTS = rf"{_INT}(?: {_INT})*"
_N_FLOATS, _ANY_FLOATS = (
    rf"{one}(?: {one})*" for one in (rf"-?(?:{_FLOAT}|inf)", rf"-?(?:{_FLOAT}|inf|nan)")
)
"""The last are statistics of the training, which no prediction uses: any number does no harm."""
_HEADER = {
    "tree": r"",
    "version": r"v4",
    "num_class": r"1",
    "num_tree_per_iteration": r"1",
    "label_index": r"0",
    "max_feature_idx": r"\d{1,6}",
    "objective": r"binary sigmoid:1",
    "feature_names": r"\S+(?: \S+)*",
    "monotone_constraints": r"-?[01](?: -?[01])*",
    "feature_infos": r"[^\s=]+(?: [^\s=]+)*",
    "tree_sizes": r"\d{1,10}(?: \d{1,10})*",
}
_OPTIONAL = {"monotone_constraints"}
_LEAF_FIELDS = {"leaf_value": _N_FLOATS, "leaf_weight": _ANY_FLOATS, "leaf_count": _N_INTS}
_SPLIT_FIELDS = {
    **dict.fromkeys(
        ("split_feature", "decision_type", "left_child", "right_child", "internal_count"), _N_INTS
    ),
    "threshold": _N_FLOATS,
    **dict.fromkeys(("split_gain", "internal_value", "internal_weight"), _ANY_FLOATS),
}
_CATEGORY_FIELDS = {"cat_boundaries": _N_INTS, "cat_threshold": _N_INTS}
_SINGLE_FIELDS = {"num_leaves": r"\d{1,6}", "num_cat": r"\d{1,6}", "is_linear": r"0", "shrinkage": _N_FLOATS}
_CATEGORICAL, _MISSING_SHIFT, _N_MISSING = 1, 2, 3
"""Of a decision type: the bit of a categorical split; above two bits, the kinds of missing values."""


def checked_text(text: str, columns: Sequence[str]) -> str:
    """The header and trees of `text`, a model of `columns`, and nothing behind them.

    Raises ModelError if it is cut short, or nothing that this package's learner writes.
    """
    try:
        return _checked(text, columns)
    except (ValueError, KeyError) as error:
        raise ModelError(f"the LightGBM model is damaged or not of this package ({error})") from None


def _checked(text: str, columns: Sequence[str]) -> str:
    _need(text.isascii() and "\r" not in text, "characters")
    at = text.find("Tree=0\n")
    _need(at > 0, "no trees")
    header = _fields(text[:at], _HEADER, _OPTIONAL)
    _need(header["feature_names"].split(" ") == list(columns), "feature_names")
    _need(int(header["max_feature_idx"]) == len(columns) - 1, "max_feature_idx")
    for name in ("feature_infos", "monotone_constraints"):
        _need(name not in header or len(header[name].split(" ")) == len(columns), name)
    for i, size in enumerate(map(int, header["tree_sizes"].split(" "))):
        first, _, rest = text[at : at + size].partition("\n")
        _need(first == f"Tree={i}" and rest.endswith("\n\n"), f"tree_sizes of tree {i}")
        _check_tree(rest, i, len(columns))
        at += size
    _need(text.startswith(_END, at), "the number of trees")
    return text[:at] + _END


def _check_tree(block: str, number: int, n_columns: int) -> None:
    """Refuse a tree whose fields are not as long as it says, or point outside it."""
    n_leaves, n_categories = (_single(block, name) for name in ("num_leaves", "num_cat"))
    _need(1 <= n_leaves <= _MAX_LEAVES, f"num_leaves of tree {number}")
    splits = _SPLIT_FIELDS if n_leaves > 1 else dict.fromkeys(_SPLIT_FIELDS, "")
    leaves = _LEAF_FIELDS if n_leaves > 1 else _LEAF_FIELDS | {"leaf_weight": ""}
    categories = _CATEGORY_FIELDS if n_categories else {}
    found = _fields(block, _SINGLE_FIELDS | splits | leaves | categories)
    for name in (*leaves, *splits):
        n_wanted = n_leaves if name in leaves else n_leaves - 1
        _need(len(found[name].split()) == (n_wanted if found[name] else 0), f"{name} of tree {number}")
    _need(bool(np.isfinite(_floats(found["leaf_value"])).all()), f"leaf_value of tree {number}")
    if n_leaves > 1:
        _check_splits(found, number, n_leaves, n_columns)
        _check_categories(found, number, n_categories)


def _check_splits(found: Mapping[str, str], number: int, n_leaves: int, n_columns: int) -> None:
    feature, kind = _ints(found["split_feature"]), _ints(found["decision_type"])
    _need(bool(((feature >= 0) & (feature < n_columns)).all()), f"split_feature of tree {number}")
    missing = kind >> _MISSING_SHIFT
    _need(bool(((missing >= 0) & (missing < _N_MISSING)).all()), f"decision_type of tree {number}")
    _need(bool((~np.isnan(_floats(found["threshold"]))).all()), f"threshold of tree {number}")
    parent = np.arange(n_leaves - 1)
    for name in ("left_child", "right_child"):
        child = _ints(found[name])
        inside = np.where(child < 0, ~child < n_leaves, (child > parent) & (child < n_leaves - 1))
        _need(bool(inside.all()), f"{name} of tree {number}")
    children = np.concatenate([_ints(found[name]) for name in ("left_child", "right_child")])
    _need(np.unique(children).size == children.size, f"what is reached twice in tree {number}")


def _check_categories(found: Mapping[str, str], number: int, n_categories: int) -> None:
    """A categorical split's threshold is the number of a set; a set is some words of `cat_threshold`."""
    categorical = (_ints(found["decision_type"]) & _CATEGORICAL).astype(bool)
    which = _floats(found["threshold"])[categorical]
    inside = (which >= 0) & (which < n_categories) & (which == np.floor(which))
    _need(bool(inside.all()), f"threshold of tree {number}")
    if n_categories:
        bounds, words = (_ints(found[name]) for name in _CATEGORY_FIELDS)
        _need(len(bounds) == n_categories + 1, f"cat_boundaries of tree {number}")
        rising = bounds[0] == 0 and bounds[-1] == len(words) and bool((np.diff(bounds) > 0).all())
        _need(rising, f"cat_boundaries of tree {number}")
        _need(bool(((words >= 0) & (words < 1 << 32)).all()), f"cat_threshold of tree {number}")


def _fields(block: str, wanted: Mapping[str, str], optional: set[str] | None = None) -> dict[str, str]:
    """The lines `name=value` of `block`: each of `wanted` once, by its pattern, and no others."""
    found: dict[str, str] = {}
    for name, value in _lines(block):
        _need(name in wanted and name not in found, f"line {name[:40]!r}")
        _need(re.fullmatch(wanted[name], value) is not None, f"{name}={value[:40]!r}")
        found[name] = value
    missing = wanted.keys() - found.keys() - (optional or set())
    _need(not missing, f"no {', '.join(sorted(missing))}")
    return found


def _lines(block: str) -> Iterator[tuple[str, str]]:
    lines = block.rstrip("\n").split("\n")
    for line in lines:
        name, _, value = line.partition("=")
        yield name, value


def _single(block: str, name: str) -> int:
    found = re.search(rf"^{name}=(\d{{1,6}})$", block, re.MULTILINE)
    _need(found is not None, f"no {name}")
    return int(found[1]) if found else 0


def _ints(text: str) -> IntArray:
    return np.array(text.split(" "), dtype=np.int64)


def _floats(text: str) -> FloatArray:
    return np.array(text.split(" "), dtype=np.float64)


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
