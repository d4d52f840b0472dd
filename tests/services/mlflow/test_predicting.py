"""Predictions by the models that a real tracking server holds."""

from __future__ import annotations

import dataclasses

import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from planted_region import (
    HOUR,
    MLFLOW_WARNINGS,
    N_AS_OFS,
    N_FILES,
    SPEC,
    Mlflow,
    loaded,
    registry,
    settings_of,
)

from features.common.errors import ModelError, StaleInputError
from features.common.times import as_of_label, day_label
from features.results import DRIFT
from features.schema import PREDICTIONS
from jobs.ground.store.tables import Tables
from jobs.loop.train import predict
from jobs.loop.train.training import TrainingAnswer
from models.learning.frame import model_matrix
from models.serving.bundle import RegionModels
from models.serving.mlflow_session import mlflow
from models.serving.versions import model_name

pytestmark = MLFLOW_WARNINGS


@pytest.fixture(autouse=True)
def candidate(server: Mlflow, trained: TrainingAnswer) -> None:
    """Other trainings may have taken the alias since."""
    assert trained.version
    registry(server).point("candidate", trained.version, tags={})


def predictions(
    tables: Tables, mlflow_at: Mlflow, *as_ofs: int, max_age_s: int = 1000 * HOUR
) -> predict.Predicted:
    return predict.run(settings_of(tables, mlflow_at, max_age_s=max_age_s), as_ofs=as_ofs)


@pytest.mark.service
def test_predictions_are_the_bundles(server: Mlflow, tables: Tables, trained: TrainingAnswer) -> None:
    last = (N_AS_OFS - 1) * HOUR
    answer = predictions(tables, server, last, last - HOUR)
    assert answer.rows == 2 * 3 * N_FILES
    assert answer.model_version == trained.version
    assert predictions(tables, server, last, last - HOUR).snapshot == answer.snapshot
    found = tables.read_arrow(PREDICTIONS, as_of=as_of_label(last)).to_pandas()
    rows = tables.read_arrow(SPEC.features_table, as_of=as_of_label(last))
    served = loaded(tables, server, "candidate")
    assert [model.within for model in served.bundle.models] == ["1h", "3h", "1d"]
    (batch,) = rows.combine_chunks().to_batches()
    expected = pa.Table.from_batches(served.predictions(batch)).to_pandas()
    key = ["did", "horizon_s"]
    for name in ("probability", "expected_accesses", "last_read_s", "size_bytes", "model_version"):
        left, right = (side.sort_values(key)[name].to_numpy() for side in (found, expected))
        np.testing.assert_array_equal(left, right, err_msg=name)
    check_without_this_package(server, served, rows.to_pandas())


def check_without_this_package(at: Mlflow, served: RegionModels, rows: pd.DataFrame) -> None:
    """Anyone with LightGBM can load the bundle's models without this package's code."""
    bundle = served.bundle
    client = mlflow.tracking.MlflowClient(at.uri)
    run_id = client.get_model_version_by_alias(model_name("emea"), "candidate").run_id
    file = mlflow.artifacts.download_artifacts(f"runs:/{run_id}/bundle/1h.lgb", tracking_uri=at.uri)
    x = model_matrix(rows, SPEC, bundle.vocabulary, bundle.columns)
    answer = np.asarray(lightgbm.Booster(model_file=file).predict(x))
    np.testing.assert_allclose(answer, served.fitted[0][1].score(x), rtol=1e-9)


@pytest.mark.service
def test_drift_is_told_where_the_features_have_moved(
    server: Mlflow, own_tables: Tables, trained: TrainingAnswer
) -> None:
    last, soon, later = ((N_AS_OFS + hours) * HOUR for hours in (-1, 5, 29))
    rows = own_tables.read_arrow(SPEC.features_table, as_of=as_of_label(last))
    recency = pc.add(rows["recency_s"], 40.0 * HOUR)
    moved = rows.set_column(rows.column_names.index("recency_s"), "recency_s", recency)
    for at_s in (soon, later):
        for name, label in (("as_of", as_of_label(at_s)), ("day", day_label(at_s))):
            moved = moved.set_column(moved.column_names.index(name), name, pa.array([label] * len(moved)))
        own_tables.replace_arrow(SPEC.features_table, moved)
    steady, early, shifted = (predictions(own_tables, server, as_of) for as_of in (last, soon, later))
    assert trained.version == steady.model_version
    assert not steady.alarms
    assert not early.alarms  # one moment soon after the training differs from its days by the hour
    (alarm,) = shifted.alarms
    assert "recency_s" in alarm
    found = {row["column"]: row for row in own_tables.read_arrow(DRIFT, as_of=as_of_label(later)).to_pylist()}
    assert {name for name, row in found.items() if row["drifted"]} >= {"recency_s"}
    assert found["gap_0_s"]["psi"] < 0.25
    assert "probability_1h" in found


@pytest.mark.service
def test_no_model_is_used_where_it_must_not_be(
    server: Mlflow, tables: Tables, trained: TrainingAnswer
) -> None:
    last = (N_AS_OFS - 1) * HOUR
    assert trained.version
    before = tables.snapshot(PREDICTIONS).id
    with pytest.raises(ModelError, match=r"no plan: caches run plain LRU.*would know the future"):
        predictions(tables, server, 0)
    with pytest.raises(StaleInputError, match=r"plain LRU.*max_age"):
        predictions(tables, server, last, max_age_s=HOUR // 2)
    with pytest.raises(StaleInputError, match=r"plain LRU.*champion; train, evaluate and promote"):
        predictions(tables, server.model_copy(update={"serve": ("champion",)}), last)
    with pytest.raises(StaleInputError, match="cachecast features"):
        predictions(tables, server, 10**6 * HOUR)
    bundle = loaded(tables, server, "champion", "candidate").bundle
    with pytest.raises(ModelError, match="other settings"):
        bundle.check(spec=dataclasses.replace(SPEC, unread_per_dataset=2), region="emea")
    with pytest.raises(ModelError, match="none of the horizons 2d"):
        bundle.check(spec=dataclasses.replace(SPEC, horizons_s=(48 * HOUR,)), region="emea")
    assert tables.snapshot(PREDICTIONS).id == before
