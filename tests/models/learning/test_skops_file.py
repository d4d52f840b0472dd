"""skops files that no learner of this package makes, and trees that point outside their arrays."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from features.errors import ModelError
from models.learning.learners import FittedSklearn, HistBoosting
from models.learning.sklearn_learners import Forest, Logistic
from models.learning.skops_file import check_skops
from models.learning.stored import load_payload

COLUMNS = ["recency_s", "gap_1_s", "tier"]
LEARNERS: dict[str, Any] = {
    "boosting": HistBoosting(trees=3, min_rows=5),
    "forest": Forest(trees=3, min_rows=5),
    "logistic": Logistic(),
}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x = pd.DataFrame({name: rng.random(1000).astype("float32") for name in COLUMNS})
    x["tier"] = np.floor(x["tier"] * 9)
    x.loc[rng.random(1000) < 0.1, "gap_1_s"] = np.nan
    return x


@pytest.fixture(scope="module")
def fitted(rows: pd.DataFrame) -> dict[str, FittedSklearn]:
    label = ((rows["tier"] % 3 == 0) ^ (rows["recency_s"] > 0.6)).to_numpy(float)
    return {name: learner.fit(rows, label) for name, learner in LEARNERS.items()}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[:2]])
def test_what_learners_make_is_loaded(rows: pd.DataFrame, name: str, columns: list[str]) -> None:
    label = (rows["recency_s"] > 0.6).to_numpy(float)
    model = LEARNERS[name].fit(rows[columns], label)
    check_skops(model.payload(), columns)
    np.testing.assert_array_equal(
        load_payload("sklearn", model.payload()).score(rows[columns]), model.score(rows[columns])
    )


def refused(payload: bytes, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        check_skops(payload, COLUMNS)


def test_other_types_are_refused_though_skops_trusts_them(rows: pd.DataFrame) -> None:
    label = (rows["recency_s"] > 0.6).to_numpy(int)
    plain = rows.fillna(0)
    for model in (LogisticRegression(), BaggingClassifier(LogisticRegression(), 2)):
        refused(skops.io.dumps(model.fit(plain, label)), "no learner of this package")
    with_code = make_pipeline(FunctionTransformer(eval), LogisticRegression())
    refused(skops.io.dumps(with_code), "eval")
    refused(skops.io.dumps(make_pipeline(FunctionTransformer(np.exp), LogisticRegression())), "numpy.exp")
    refused(skops.io.dumps(Pipeline([("a", LogisticRegression())], memory="caches")), "memory")
    refused(cloudpickle.dumps(LogisticRegression()), "damaged")


def test_a_forest_that_would_start_processes_is_refused(fitted: dict[str, FittedSklearn]) -> None:
    refused(rewritten(fitted["forest"].payload(), _many_processes), "n_jobs")


def test_settings_that_a_shared_part_or_json_would_hide_are_refused(fitted: dict[str, FittedSklearn]) -> None:
    payload = fitted["forest"].payload()
    refused(rewritten(payload, _many_processes_by_another_name), "several objects")
    refused(rewritten(payload, _attributes_as_json), "a JSON list or object")


def test_compressed_and_doubled_parts_are_refused(fitted: dict[str, FittedSklearn]) -> None:
    model = fitted["forest"].model
    refused(skops.io.dumps(model, compression=zipfile.ZIP_DEFLATED), "compressed")
    refused(rewritten(fitted["forest"].payload(), _one_part_for_all), "several objects")
    refused(rewritten(fitted["forest"].payload(), lambda schema: schema.pop("__class__")), "damaged")


def test_columns_must_be_the_bundle_s(fitted: dict[str, FittedSklearn]) -> None:
    for one in fitted.values():
        with pytest.raises(ModelError, match="feature_names_in_"):
            check_skops(one.payload(), ["other", *COLUMNS[1:]])


@pytest.mark.parametrize(
    ("field", "value"), [("left", 10**9), ("right", 0), ("feature_idx", 3), ("bitset_idx", 900)]
)
def test_boosted_trees_that_point_outside_are_refused(
    fitted: dict[str, FittedSklearn], field: str, value: int
) -> None:
    model = skops.io.loads(fitted["boosting"].payload(), trusted=trusted(fitted["boosting"]))
    nodes = model._predictors[0][0].nodes
    which = nodes["is_categorical"] == 1 if field == "bitset_idx" else nodes["is_leaf"] == 0
    nodes[field][which] = value
    refused(skops.io.dumps(model), f"{field} is out of range")


def test_boosting_by_categories_it_does_not_know_is_refused(fitted: dict[str, FittedSklearn]) -> None:
    model = skops.io.loads(fitted["boosting"].payload(), trusted=trusted(fitted["boosting"]))
    model._bin_mapper.bin_thresholds_[0] = np.array([0, 70000], dtype=np.float32)
    refused(skops.io.dumps(model), "bin_thresholds_")
    model = skops.io.loads(fitted["boosting"].payload(), trusted=trusted(fitted["boosting"]))
    model._bin_mapper.is_categorical_[:] = 0
    refused(skops.io.dumps(model), "is_categorical")


@pytest.mark.parametrize("field", ["left_child", "right_child", "feature"])
def test_a_forest_that_points_outside_is_refused(fitted: dict[str, FittedSklearn], field: str) -> None:
    model = skops.io.loads(fitted["forest"].payload(), trusted=trusted(fitted["forest"]))
    tree = model.estimators_[0].tree_
    state = tree.__getstate__()
    state["nodes"][field][0] = 10**7
    tree.__setstate__(state)
    refused(skops.io.dumps(model), "is out of range")


def test_a_forest_without_nodes_is_refused(fitted: dict[str, FittedSklearn]) -> None:
    refused(rewritten(fitted["forest"].payload(), _no_nodes), "node_count")


def trusted(model: FittedSklearn) -> list[str]:
    return skops.io.get_untrusted_types(data=model.payload())


def rewritten(payload: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The skops file with a changed schema."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(payload)) as old, zipfile.ZipFile(made, "w") as new:
        schema = json.loads(old.read("schema.json"))
        change(schema)
        for name in old.namelist():
            new.writestr(name, json.dumps(schema) if name == "schema.json" else old.read(name))
    return made.getvalue()


def _many_processes(schema: dict[str, Any]) -> None:
    schema["content"]["content"]["n_jobs"]["content"] = "1000"


def _many_processes_by_another_name(schema: dict[str, Any]) -> None:
    """skops builds what it finds first under an `__id__`, and that wherever it is named again."""
    known = schema["content"]["content"]
    harmless = known["n_jobs"] | {"__id__": 1}
    schema["content"]["content"] = {"first": harmless | {"content": "64"}} | known | {"n_jobs": harmless}


def _attributes_as_json(schema: dict[str, Any]) -> None:
    known = {"feature_names_in_": COLUMNS, "estimators_": [], "n_jobs": 64}
    plain = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode"}
    schema["content"] = plain | {"content": json.dumps(known)}


def _parts(value: Any) -> list[dict[str, Any]]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, dict) and "file" in value else []
    return own + [part for one in inside for part in _parts(one)]


def _one_part_for_all(schema: dict[str, Any]) -> None:
    first, *others = _parts(schema)
    for one in others:
        one["file"] = first["file"]


def _no_nodes(value: Any) -> None:
    if isinstance(value, dict) and "node_count" in value:
        plain = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "__id__": 1}
        value["node_count"] = {**plain, "content": "0", "is_json": True}
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _no_nodes(one)
