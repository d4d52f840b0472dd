"""Predictions of Spark's workers and of a pandas frame, compared number by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from features.errors import ModelError
from features.schema import PREDICTIONS
from features.spark.schema import struct_type
from features.spec import FeatureSpec
from jobs.train.spark_scoring import scored as scored_by_spark
from models.learning.baselines import Recency, S3FifoCounts
from models.learning.calibration import Knots
from models.learning.frame import learn_vocabulary, model_matrix
from models.learning.learners import LightGBM
from models.serving.bundle import Bundle, HorizonModel
from models.serving.drift import Reference
from models.serving.scoring import LoadedModels, ServedModels
from models.training.training import fit_in_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = FeatureSpec(
    cycle_s=3600,
    horizons_s=(3600, 7200),
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
    return frame.assign(did=names, **dict.fromkeys(SPEC.categorical_columns, tier), **where)


@pytest.fixture(scope="module")
def models(rows: pd.DataFrame) -> ServedModels:
    """LightGBM and recency, for a horizon each."""
    words = learn_vocabulary(rows, SPEC)
    matrix = model_matrix(rows, SPEC, words)
    y: Any = (matrix["recency_s"].fillna(0) > 5e5).to_numpy(dtype=float)
    payloads = {3600: LightGBM(trees=20).fit(matrix, y).payload(), 7200: b""}
    found = [
        HorizonModel(
            horizon_s=horizon_s,
            learner=learner,
            calibration=Knots("platt", (0.0, 0.3, 1.0), (0.01, 0.2, 0.98)),
            reads=Knots("bins", (0.0, 1.0), (1.0, 7.0)),
            trained_until_s=0,
            scores=Reference((), (1.0, 0.0), 0.0),
        )
        for learner, horizon_s in (("lightgbm", 3600), ("recency", 7200))
    ]
    bundle = Bundle("emea", SPEC, tuple(matrix.columns), words, 0, tuple(found), {}, {})
    return ServedModels(bundle, payloads, "cachecast-emea/7", "d" * 64)


def slowly(rows: pd.DataFrame, models: ServedModels) -> pd.DataFrame:
    """The predictions by pandas and LightGBM's own door, one horizon after the other."""
    bundle = models.bundle
    matrix = model_matrix(rows, SPEC, bundle.vocabulary)
    parts = []
    for model in bundle.models:
        if model.learner == "lightgbm":
            raw = lgb.Booster(model_str=models.payloads[model.horizon_s].decode()).predict(matrix)
        else:
            raw = Recency().score(matrix)
        p = np.interp(raw, model.calibration.x, model.calibration.y)
        part = rows[["did", "dataset", "tier", "region", "day", "as_of"]].assign(
            horizon_s=model.horizon_s,
            probability=p,
            expected_accesses=p * np.interp(p, model.reads.x, model.reads.y),
            size_bytes=rows["size_bytes"].round().astype("Int64"),
            last_read_s=rows["recency_s"].round().astype("Int64"),
            model_version=models.version,
            model_digest=models.digest,
        )
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert list(found.columns) == [*PREDICTIONS.column_names, *PREDICTIONS.partition]
    key = ["horizon_s", "did"]
    sides = [side.sort_values(key, ignore_index=True) for side in (found, expected)]
    for name in ("probability", "expected_accesses"):
        left, right = (side.pop(name).to_numpy() for side in sides)
        np.testing.assert_allclose(left, right, rtol=1e-12)
    for name in sides[0].columns:
        a, b = (side[name].astype(object).where(side[name].notna(), None) for side in sides)
        assert a.tolist() == b.tolist(), name


def test_spark_gives_the_bits_of_this_process_and_the_numbers_of_the_library(
    spark: SparkSession, rows: pd.DataFrame, models: ServedModels
) -> None:
    schema = struct_type(SPEC.features_table, with_partition=True)
    frame = spark.createDataFrame(
        rows[schema.names].astype(object).where(rows[schema.names].notna(), None).to_dict("records"), schema
    )
    found = scored_by_spark(frame.repartition(3), models)
    assert found.schema == struct_type(PREDICTIONS, with_partition=True)
    by_spark, by_arrow = found.toPandas(), scored(rows, models.load()).to_pandas()
    same(by_spark, slowly(rows, models))
    key = ["horizon_s", "did"]
    for name in ("probability", "expected_accesses"):
        a, b = (side.sort_values(key)[name].tolist() for side in (by_spark, by_arrow))
        assert a == b


def scored(rows: pd.DataFrame, models: LoadedModels) -> pa.Table:
    (batch,) = pa.Table.from_pandas(rows).to_batches()
    return pa.Table.from_batches(models.predictions(batch))


def test_arrow_gives_the_numbers_of_the_library(rows: pd.DataFrame, models: ServedModels) -> None:
    found = scored(rows, models.load()).to_pandas()
    same(found, slowly(rows, models))
    assert found["probability"].between(0, 1).all()
    assert found["size_bytes"].isna().sum() == 2 * rows["size_bytes"].isna().sum() > 0


def test_horizons_that_nobody_asks_for_are_not_scored(rows: pd.DataFrame, models: ServedModels) -> None:
    found = scored(rows, models.only([7200, 10**6]).load())
    assert found["horizon_s"].unique().to_pylist() == [7200]


def test_no_rows_give_no_predictions(spark: SparkSession, models: ServedModels) -> None:
    empty = spark.createDataFrame([], struct_type(SPEC.features_table, with_partition=True))
    assert scored_by_spark(empty, models).collect() == []


def test_a_walk_learns_in_memory_models_and_baselines_alike(rows: pd.DataFrame) -> None:
    past = rows.assign(as_of_s=np.repeat(np.arange(20) * 3600, 30))
    past["n_access_within_1h"] = np.random.default_rng(1).poisson(0.5, len(rows)).astype(float)
    past["n_access_within_2h"] = np.nan
    for learner in (lambda _: LightGBM(trees=5), lambda _: S3FifoCounts(3600)):
        found = fit_in_memory(
            past, spec=SPEC, region="emea", until_s=15 * 3600, learner=learner, version="walk"
        )
        assert [model.within for model, _ in found.fitted] == ["1h"]
        assert found.bundle.models[0].trained_until_s == 15 * 3600
        assert "no label within 2h" in found.bundle.dropped["2h"]
        assert scored(rows, found)["probability"].to_numpy().mean() == pytest.approx(
            1 - np.exp(-0.5), abs=0.1
        )
    with pytest.raises(ModelError, match="no horizon can be trained"):
        fit_in_memory(past, spec=SPEC, region="emea", until_s=0, learner=learner, version="walk")
