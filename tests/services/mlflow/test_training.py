"""What a training keeps in MLflow, in a real tracking server and in SQLite, and predictions by it."""

import dataclasses
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from planted_region import (
    FIRST,
    HOUR,
    LEARNERS,
    MLFLOW_WARNINGS,
    N_AS_OFS,
    N_FILES,
    SPEC,
    TRAIN_UNTIL_S,
    Knobs,
    Mlflow,
    check_answer,
    fit,
    loaded,
    registry,
    settings_of,
)

from features.common.errors import ModelError, StaleInputError
from features.common.times import as_of_label, day_label
from features.results import DRIFT, MODEL_METRICS, RELIABILITY
from features.schema import PREDICTIONS
from jobs.ground.store.tables import Tables
from jobs.loop.train import predict
from jobs.loop.train.training import TrainingAnswer
from models.learning.frame import model_matrix
from models.serving.bundle import RegionModels
from models.serving.mlflow_session import mlflow
from models.serving.versions import model_name

pytestmark = MLFLOW_WARNINGS


@pytest.mark.service
def test_a_real_server_keeps_what_was_compared(
    server: Mlflow, tables: Tables, trained: TrainingAnswer
) -> None:
    check_answer(trained, FIRST, LEARNERS)
    metrics = tables.read_arrow(MODEL_METRICS).to_pylist()
    assert {row["run_id"] for row in metrics} == {row.run_id for row in trained.models}
    assert {row["model"] for row in tables.read_arrow(RELIABILITY).to_pylist()} == set(LEARNERS)
    client = mlflow.tracking.MlflowClient(server.uri)
    row = next(row for row in trained.models if row.model == "lightgbm")
    assert row.run_id is not None
    run = client.get_run(row.run_id)
    parts = {"byte/all/auc", "dataset/cold/auc", "file/warm/auc", "file/tier_AOD/auc"}
    shares = {f"file/at_{percent}pct/recall" for percent in (5, 10, 20)}
    assert run.data.metrics.keys() >= parts | shares
    parent = client.get_run(run.data.tags["mlflow.parentRunId"])
    assert (run.info.status, parent.info.status) == ("FINISHED", "FINISHED")
    assert run.data.tags["features_snapshot"] == tables.snapshot(SPEC.features_table).id
    serving = {row.within: row.model for row in trained.models if row.serves}
    assert parent.data.tags["model"] == ", ".join(f"{h} {model}" for h, model in serving.items())
    assert parent.data.tags["order"].startswith("none: there is no table accesses")
    assert str(trained.no_order).startswith("there is no table accesses")
    assert " decision times, " in parent.data.tags["data"]
    assert {each.dataset.name for each in parent.inputs.dataset_inputs} == {"features", "labels"}
    assert run.data.tags["package_version"]
    serves = [row for row in trained.models if row.serves]
    figures = {
        f"{name}/{row.within}": pytest.approx(value)
        for row in serves
        for name in ("auc", "average_precision", "calibration_error")
        if (value := getattr(row, name)) is not None
    }
    bounds = {f"{name}/{row.within}": pytest.approx(of) for row in serves for name, of in row.bounds.items()}
    assert parent.data.metrics == figures | bounds
    for within in ("1h", "3h"):
        low, auc, high = (parent.data.metrics[f"auc{end}/{within}"] for end in ("_lower", "", "_upper"))
        assert low < auc < high
        assert parent.data.metrics[f"calibration_error_upper/{within}"] > 0
    parameters = {"cycle": "1h", "span": "1d", "demand": "all", "region": "emea"}
    assert parameters.items() <= parent.data.params.items()
    assert parent.data.params["n_rows"] in parent.data.tags["data"]
    assert run.data.params["trees"] == "40"
    assert run.data.metrics["test_auc"] == pytest.approx(row.auc)
    assert {"validation_log_loss", "byte/cold/auc", "file/at_10pct/recall"} <= set(run.data.metrics)
    mlflow.set_tracking_uri(server.uri)  # another test may have worked elsewhere
    check_artifacts(client, row.run_id, next(str(r.run_id) for r in trained.models if r.model == "forest"))


@pytest.mark.service
@pytest.mark.filterwarnings("ignore::UserWarning:mlflow")
def test_a_version_explains_itself(server: Mlflow, tables: Tables, trained: TrainingAnswer) -> None:
    client = mlflow.tracking.MlflowClient(server.uri, registry_uri=server.uri)
    version = client.get_model_version(*trained.version.split("/"))
    assert version.tags["may_push"] == version.tags["may_evict"] == "no: not evaluated yet"
    model = client.get_logged_model(version.tags["model_id"])
    assert model.source_run_id == version.run_id
    assert {metric.key for metric in model.metrics} >= {"auc/1h", "calibration_error/3h"}
    mlflow.set_tracking_uri(server.uri)
    mlflow.set_registry_uri(server.uri)  # another test may have worked elsewhere
    files = Path(mlflow.artifacts.download_artifacts(model.artifact_location, tracking_uri=server.uri))
    about = mlflow.models.Model.load(str(files))
    columns = [*SPEC.numeric_columns, *SPEC.categorical_columns]
    assert about.signature.inputs.input_names() == columns
    assert about.signature.outputs.input_names()[:2] == [
        "probability_within_1h",
        "expected_accesses_within_1h",
    ]
    example: Any = about.load_input_example(str(files))
    assert list(example.columns) == columns
    assert len(example) == 5
    assert len((files / "features.csv").read_text().splitlines()) == 1 + len(columns)
    assert tables.snapshot(SPEC.features_table).id in str(version.description)
    assert version.description == (files / "README.md").read_text()
    with pytest.raises(mlflow.MlflowException, match="python_function"):
        mlflow.pyfunc.load_model(f"models:/{trained.version}")
    assert about.flavors["cachecast"]["loader"] in str(version.description)


def check_artifacts(client: mlflow.tracking.MlflowClient, boosted: str, forest: str) -> None:
    """A nested run holds what is needed to understand the model."""
    plots = {"calibration.png", "roc.png", "precision_recall.png"}
    assert {item.path for item in client.list_artifacts(boosted)} == {*plots, "importance.csv"}
    assert {item.path for item in client.list_artifacts(forest)} == plots
    gains = mlflow.artifacts.load_text(f"runs:/{boosted}/importance.csv").splitlines()
    assert gains[0] == "column,gain_share"
    assert {line.split(",")[0] for line in gains[1:3]} == {"recency_s", "gap_0_s"}


def test_sqlite_keeps_models_too(
    own_tables: Tables, knobs: Knobs, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    in_sqlite = Mlflow(uri=f"sqlite:///{tmp_path}/mlflow.db", artifacts=str(tmp_path / "artifacts"))
    check_answer(fit(own_tables, in_sqlite, knobs), FIRST, {"lightgbm"})
    served = loaded(own_tables, in_sqlite, "candidate")
    for model in served.bundle.models:
        assert TRAIN_UNTIL_S - model.horizon_s <= model.trained_until_s <= TRAIN_UNTIL_S
    assert [model.learner for model in served.bundle.models] == ["lightgbm", "lightgbm", "recency"]
    assert len(served.fitted) == 3
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


@pytest.fixture(autouse=True)
def candidate(server: Mlflow, trained: TrainingAnswer) -> None:
    """Other trainings may have taken the alias since."""
    assert trained.version
    registry(server).point("candidate", trained.version)


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
    predicted = tables.read_arrow(PREDICTIONS, as_of=as_of_label(last)).to_pandas()
    rows = tables.read_arrow(SPEC.features_table, as_of=as_of_label(last))
    served = loaded(tables, server, "candidate")
    assert [model.within for model in served.bundle.models] == ["1h", "3h", "1d"]
    (batch,) = rows.combine_chunks().to_batches()
    expected = pa.Table.from_batches(served.predictions(batch)).to_pandas()
    key = ["did", "horizon_s"]
    for name in ("probability", "expected_accesses", "last_read_s", "size_bytes", "model_version"):
        left, right = (side.sort_values(key)[name].to_numpy() for side in (predicted, expected))
        np.testing.assert_array_equal(left, right, err_msg=name)
    check_without_this_package(server, served, rows.to_pandas())


def check_without_this_package(at: Mlflow, served: RegionModels, rows: pd.DataFrame) -> None:
    """Anyone with LightGBM can load the bundle's models without this package's code."""
    bundle = served.bundle
    client = mlflow.tracking.MlflowClient(at.uri)
    run_id = client.get_model_version_by_alias(model_name("emea"), "candidate").run_id
    file = mlflow.artifacts.download_artifacts(f"runs:/{run_id}/bundle/1h.lgb", tracking_uri=at.uri)
    x = model_matrix(rows, SPEC, bundle.vocabulary)[list(bundle.columns)]
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
    drift = {row["column"]: row for row in own_tables.read_arrow(DRIFT, as_of=as_of_label(later)).to_pylist()}
    assert {name for name, row in drift.items() if row["drifted"]} >= {"recency_s"}
    assert drift["gap_0_s"]["psi"] < 0.25
    assert "probability_1h" in drift


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
