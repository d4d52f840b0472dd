"""scikit-learn models from skops files: types of a fixed list, then arrays that point nowhere outside.

skops looks at types alone, and by itself trusts every estimator there is. scikit-learn's trees follow their
indices unchecked (https://github.com/scikit-learn/scikit-learn/pull/34558): they are checked here before any
prediction.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import skops.io
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from features.errors import ModelError

_MAX_PARTS = 100_000
_SCHEMA = "schema.json"
_LEAF = -1
_N_CATEGORIES, _BITSET_WORDS = 256, 8
_BOOSTING = "sklearn.ensemble._hist_gradient_boosting"
_PLAIN = {
    "DictNode builtins.dict",
    "JsonNode builtins.str",
    "ListNode builtins.list",
    "NdArrayNode numpy.ndarray",
    "SliceNode builtins.slice",
    "TupleNode builtins.tuple",
    "TypeNode builtins.str",
    *(
        f"{node} numpy.{kind}"
        for node in ("NdArrayNode", "TypeNode")
        for kind in ("float64", "int64", "uint64")
    ),
}
_COLUMNS = {
    "ObjectNode sklearn.compose._column_transformer.ColumnTransformer",
    "ObjectNode sklearn.preprocessing._function_transformer.FunctionTransformer",
}
TYPES = {
    f"{_BOOSTING}.gradient_boosting.HistGradientBoostingClassifier": {
        *_PLAIN,
        *_COLUMNS,
        f"ObjectNode {_BOOSTING}.gradient_boosting.HistGradientBoostingClassifier",
        f"ObjectNode {_BOOSTING}.binning._BinMapper",
        f"ObjectNode {_BOOSTING}.predictor.TreePredictor",
        "ObjectNode sklearn._loss.link.Interval",
        "ObjectNode sklearn._loss.link.LogitLink",
        "ObjectNode sklearn._loss.loss.HalfBinomialLoss",
        "LossNode sklearn._loss._loss.CyHalfBinomialLoss",
        "ObjectNode sklearn.preprocessing._encoders.OrdinalEncoder",
        "ObjectNode sklearn.preprocessing._label.LabelEncoder",
        "RandomGeneratorNode numpy.random._generator.Generator",
        "PartialNode functools.partial",
        "FunctionNode sklearn.utils.validation.check_array",
    },
    "sklearn.ensemble._forest.RandomForestClassifier": {
        *_PLAIN,
        "ObjectNode sklearn.ensemble._forest.RandomForestClassifier",
        "ObjectNode sklearn.tree._classes.DecisionTreeClassifier",
        "TreeNode sklearn.tree._tree.Tree",
    },
    "sklearn.pipeline.Pipeline": {
        *_PLAIN,
        *_COLUMNS,
        "ObjectNode sklearn.pipeline.Pipeline",
        "ObjectNode sklearn.linear_model._logistic.LogisticRegression",
        "ObjectNode sklearn.impute._base.SimpleImputer",
        "ObjectNode sklearn.preprocessing._data.MaxAbsScaler",
        "ObjectNode sklearn.preprocessing._data.StandardScaler",
        "ObjectNode sklearn.preprocessing._encoders.OneHotEncoder",
        "FunctionNode numpy.arcsinh",
        "DTypeNode numpy.dtype",
    },
}
"""By a model's own type: each `loader type` that its file may hold, as this package's learners make it."""
TRUSTED = sorted({one.partition(" ")[2] for types in TYPES.values() for one in types})
"""The same as skops takes them, for a file that was checked."""
_FIXED = {"n_jobs": ("null", "1"), "memory": ("null",)}
"""Settings of estimators, as JSON: others would start processes, or read pickles from a folder."""


def check_skops(payload: bytes, columns: Sequence[str]) -> None:
    """Refuse (ModelError) what is no skops file of a classifier of `columns` by this package's learners.

    Types are checked before anything is built, arrays before anything is predicted.
    """
    try:
        _check_file(payload)
        _check_model(skops.io.loads(payload, trusted=TRUSTED), columns)
    except ModelError:
        raise
    except Exception as error:  # a forged file can make libraries raise anything
        raise ModelError(f"the scikit-learn model is damaged ({type(error).__name__}: {error})") from error


def _check_file(payload: bytes) -> None:
    """Refuse types outside the list, and parts that take more memory than the file: compressed or shared."""
    with zipfile.ZipFile(io.BytesIO(payload)) as parts:
        infos = parts.infolist()
        stored = all(info.compress_type == zipfile.ZIP_STORED for info in infos)
        if not stored or len(infos) > _MAX_PARTS or sum(i.file_size for i in infos) > len(payload):
            raise ModelError(
                "the scikit-learn model is no skops file of this package: compressed or too many parts"
            )
        schema = json.loads(parts.read(_SCHEMA))
    kind = _type(schema)
    nodes = list(_nodes(schema))
    unknown = sorted({f"{node['__loader__']} {_type(node)}" for node in nodes} - TYPES.get(kind, set()))
    if unknown:
        raise ModelError(f"the scikit-learn model holds {unknown[0]}, which no learner of this package makes")
    objects = {(node["file"], node.get("__id__")) for node in nodes if "file" in node}
    if None in {known for _, known in objects} or len({file for file, _ in objects}) < len(objects):
        raise ModelError("the scikit-learn model uses one of its parts for several objects")
    for node in nodes:
        _check_scalar(node)
        _check_settings(node)
    _check_shared(nodes)


def _check_shared(nodes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse values that share an `__id__`: skops builds the first one in the place of all."""
    values: dict[object, str] = {}
    for node in nodes:
        known = node.get("__id__")
        content = node.get("content")
        value = f"{node['__loader__']} {_type(node)} {content if isinstance(content, str) else ''}"
        if known is not None and values.setdefault(known, value) != value:
            raise ModelError("the scikit-learn model uses one of its parts for several objects")


def _check_scalar(node: Mapping[str, Any]) -> None:
    """Refuse JSON that is no single value: its settings would be seen by nobody."""
    if node["__loader__"] == "JsonNode" and isinstance(json.loads(node["content"]), dict | list):
        raise ModelError("the scikit-learn model holds a JSON list or object, which no learner makes")


def _check_settings(node: Mapping[str, Any]) -> None:
    if node["__loader__"] != "DictNode":
        return
    for name, allowed in _FIXED.items():
        if name in node["content"] and node["content"][name].get("content") not in allowed:
            raise ModelError(f"the scikit-learn model sets {name}, which no learner of this package does")


def _nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every dictionary of the schema that skops would build something of."""
    if isinstance(value, dict):
        if "__loader__" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _nodes(one)


def _type(node: Mapping[str, Any]) -> str:
    return f"{node['__module__']}.{node['__class__']}"


def _check_model(model: ClassifierMixin, columns: Sequence[str]) -> None:
    _need(list(model.feature_names_in_) == list(columns), "feature_names_in_")
    if isinstance(model, HistGradientBoostingClassifier):
        _check_boosting(model, columns)
    elif isinstance(model, RandomForestClassifier):
        for one in model.estimators_:
            _check_tree(one.tree_, len(columns))
    elif isinstance(model, Pipeline):
        _need(isinstance(model.steps[-1][1], LogisticRegression), "steps")
    else:
        raise ModelError(
            f"the scikit-learn model is a {type(model).__name__}, not one of this package's learners"
        )


def _check_tree(tree: Any, n_columns: int) -> None:
    _need(1 <= tree.node_count <= tree.capacity, "node_count")  # the arrays below are as long as it says
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    inner = left != _LEAF
    _need(_behind(left[inner], inner, tree.node_count), "children_left")
    _need(_behind(right[inner], inner, tree.node_count), "children_right")
    _need(bool(((feature[inner] >= 0) & (feature[inner] < n_columns)).all()), "feature")


def _check_boosting(model: Any, columns: Sequence[str]) -> None:
    row = pd.DataFrame(np.zeros((1, len(columns)), np.float32), columns=list(columns))
    _need(not getattr(model, "_in_fit", False), "_in_fit")
    width = model._preprocess_X(row, reset=False).shape[1]
    categorical = np.asarray(model._bin_mapper.is_categorical_, dtype=bool)
    _need(width == len(columns) == len(categorical) == len(model._bin_mapper.bin_thresholds_), "columns")
    for column in np.flatnonzero(categorical):
        values = np.asarray(model._bin_mapper.bin_thresholds_[column])
        _need(bool(((values >= 0) & (values < _N_CATEGORIES)).all()), "bin_thresholds_")
    for predictor in (one for trees in model._predictors for one in trees):
        _check_predictor(predictor, categorical)


def _check_predictor(predictor: Any, categorical: npt.NDArray[np.bool_]) -> None:
    nodes, sets = predictor.nodes, predictor.raw_left_cat_bitsets
    _need(nodes.ndim == 1 and len(nodes) > 0, "nodes")
    _need(
        sets.ndim == 2 and sets.shape[1] == _BITSET_WORDS and sets.dtype == np.uint32, "raw_left_cat_bitsets"
    )
    inner = nodes["is_leaf"] == 0
    splits = nodes[inner]
    for name in ("left", "right"):
        _need(_behind(splits[name], inner, len(nodes)), name)
    feature = splits["feature_idx"]
    _need(bool(((feature >= 0) & (feature < len(categorical))).all()), "feature_idx")
    by_set = splits["is_categorical"] != 0
    _need(bool(categorical[feature[by_set]].all()), "is_categorical")
    _need(bool((splits["bitset_idx"][by_set] < len(sets)).all()), "bitset_idx")


def _behind(child: npt.NDArray[Any], inner: npt.NDArray[np.bool_], n_nodes: int) -> bool:
    """Whether every child is a node, and behind its parent: no way through the tree is endless."""
    child = child.astype(np.int64)
    return bool(((child > np.flatnonzero(inner)) & (child < n_nodes)).all())


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ModelError(f"the scikit-learn model is damaged or forged: {what} is out of range")
