"""Predictions of Spark's workers and of a pandas frame, compared number by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from features.schema import PREDICTIONS
from features.spark.schema import struct_type
from features.spec import FeatureSpec
from models.bundle import Bundle
from models.calibration import Knots
from models.frame import learn_vocabulary, model_matrix
from models.learners import HistBoosting, LightGBM
from models.scoring import ServedModel, score_frame, score_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = FeatureSpec(
    cycle_s=3600,
    windows_s=(3600, 86400),
    half_lives_s=(3600,),
    horizons_s=(3600, 7200),
    n_gaps=1,
    candidate_s=86400,
    active_dataset_s=3600,
)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """A features table's rows, with nulls of every kind."""
    rng = np.random.default_rng(2)
    n = 600
    frame = pd.DataFrame({name: rng.random(n) * 1e5 for name in SPEC.numeric_columns})
    frame["size_bytes"] = rng.integers(1, 10**12, n).astype(float)
    frame["recency_s"] = rng.integers(1, 10**6, n).astype(float)
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    tier = np.array(["AOD", "RAW", None, "ÄÖ"], dtype=object)[rng.integers(0, 4, n)]
    names = [f"s:f{i}" for i in range(n)]
    where = {"region": "emea", "dataset": None, "day": "1970-01-01", "as_of": "1970-01-01T01:00:00Z"}
    return frame.assign(did=names, tier=tier, **where)


@pytest.fixture(scope="module")
def models(rows: pd.DataFrame) -> list[ServedModel]:
    """One model of each flavour, for two horizons."""
    words = learn_vocabulary(rows, SPEC)
    matrix = model_matrix(rows, SPEC, words)
    y = (matrix["recency_s"].fillna(0) > 5e5).to_numpy(dtype=float)
    served = []
    for learner, horizon_s in ((LightGBM(trees=20, threads=1), 3600), (HistBoosting(trees=20), 7200)):
        fitted = learner.fit(matrix, y)
        bundle = Bundle(
            region="emea",
            horizon_s=horizon_s,
            spec=SPEC,
            columns=tuple(matrix.columns),
            vocabulary=words,
            learner=learner.name,
            flavour=fitted.flavour,
            calibration=Knots("platt", (0.0, 0.3, 1.0), (0.01, 0.2, 0.98)),
            reads=Knots("bins", (0.0, 1.0), (1.0, 7.0)),
            trained_until_s=0,
        )
        served.append(ServedModel(bundle, fitted.payload(), f"m/{horizon_s}"))
    return served


def test_spark_and_pandas_agree_exactly(
    spark: SparkSession, rows: pd.DataFrame, models: list[ServedModel]
) -> None:
    schema = struct_type(SPEC.features_table, with_partition=True)
    frame = spark.createDataFrame(
        rows[schema.names].astype(object).where(rows[schema.names].notna(), None).to_dict("records"), schema
    )
    found = score_spark(frame.repartition(3), models)
    assert found.schema == struct_type(PREDICTIONS, with_partition=True)
    expected = score_frame(rows, [model.load() for model in models])
    key = ["horizon_s", "did"]
    left = found.toPandas().sort_values(key, ignore_index=True)
    right = expected.sort_values(key, ignore_index=True)
    for name in right.columns:
        a, b = (side[name].astype(object).where(side[name].notna(), None) for side in (left, right))
        assert a.tolist() == b.tolist(), name
    assert len(left) == 2 * len(rows)


def test_predictions_are_probabilities_and_carry_the_file(
    rows: pd.DataFrame, models: list[ServedModel]
) -> None:
    found = score_frame(rows.head(5), [model.load() for model in models])
    assert list(found.columns) == [*PREDICTIONS.column_names, *PREDICTIONS.partition]
    assert found["probability"].between(0, 1).all()
    assert found["model_version"].unique().tolist() == ["m/3600", "m/7200"]
    sizes = rows["size_bytes"].head(5)
    assert found["size_bytes"].head(5).isna().tolist() == sizes.isna().tolist()
    assert found["size_bytes"].head(5).dropna().tolist() == sizes.dropna().astype(int).tolist()


def test_no_rows_give_no_predictions(rows: pd.DataFrame, models: list[ServedModel]) -> None:
    empty = score_frame(rows.head(0), [model.load() for model in models])
    assert (len(empty), list(empty.columns)) == (0, [*PREDICTIONS.column_names, *PREDICTIONS.partition])
