"""Training, registering, loading and predicting against a real MLflow tracking server, and against SQLite."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import requests

from features.errors import ModelError, ServiceError, StaleInputError
from features.results import MODEL_METRICS, RELIABILITY
from features.schema import PREDICTIONS
from features.spec import FeatureSpec
from features.times import as_of_label, day_label
from jobs import predict, train
from jobs.tables import Tables
from models.frame import model_matrix
from models.mlflow_session import mlflow
from models.registry import Registry, model_name
from models.scoring import score_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# MLflow's and its libraries' own deprecations; ours still fail.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlflow"),
]

HOUR = 3600
SPEC = FeatureSpec(
    cycle_s=HOUR,
    windows_s=(HOUR, 24 * HOUR),
    half_lives_s=(HOUR, 24 * HOUR),
    horizons_s=(HOUR, 3 * HOUR),
    n_gaps=1,
    candidate_s=24 * HOUR,
    active_dataset_s=HOUR,
)
N_AS_OFS, N_FILES = 40, 120
UNTIL_S = N_AS_OFS * HOUR
TRAIN_UNTIL_S = UNTIL_S - 2 * HOUR
"""The last two as_ofs come after the training: predictions are made there."""
START_S = 60


@dataclass(frozen=True)
class Knobs:
    """The `[training]` settings, small."""

    max_rows: int = 4000
    test_share: float = 0.3
    trees: int = 60
    seed: int = 1


@dataclass(frozen=True)
class Mlflow:
    """The `[mlflow]` settings."""

    uri: str
    artifacts: str
    experiment: str = "cachecast-test"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    """A tracking server of its own: SQLite, artifacts served, one worker."""
    folder = tmp_path_factory.mktemp("mlflow")
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--serve-artifacts", "--artifacts-destination", (folder / "artifacts").as_uri()]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env={**os.environ, **quiet}, stdout=out, stderr=out, start_new_session=True
        )
    try:
        wait_until_healthy(process, f"http://127.0.0.1:{port}/health", log)
        yield Mlflow(f"http://127.0.0.1:{port}", "unused")
    finally:
        stop_group(process)


def wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(requests.RequestException):
            if requests.get(url, timeout=2).ok:
                return
        time.sleep(0.3)
    pytest.fail(f"the MLflow server did not come up in {START_S} s:\n{log.read_text()[-2000:]}")


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """End the server and the workers it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Features and labels with a planted signal: a file is read again when its last gap has passed."""
    rng = np.random.default_rng(1)
    store = Tables(str(tmp_path_factory.mktemp("tables")))
    n = N_AS_OFS * N_FILES
    as_of = np.repeat(np.arange(N_AS_OFS) * HOUR, N_FILES)
    gap, recency = rng.integers(1, 20, n) * HOUR, rng.integers(1, 20, n) * HOUR
    again = rng.random(n) < np.where(np.abs(gap - recency) < 4 * HOUR, 0.8, 0.05)
    keys = {
        "did": [f"s:f{i % N_FILES}" for i in range(n)],
        "day": [day_label(int(a)) for a in as_of],
        "as_of": [as_of_label(int(a)) for a in as_of],
        "region": ["emea"] * n,
    }
    known = {"recency_s": recency.astype(float), "gap_1_s": gap.astype(float), "size_bytes": np.full(n, 7e9)}
    numbers = {name: known.get(name, rng.random(n)) for name in SPEC.numeric_columns}
    text = {"dataset": pa.nulls(n, pa.string()), "tier": ["AOD" if i % 2 else "RAW" for i in range(n)]}
    store.replace_arrow(SPEC.features_table, pa.table({**keys, **text, **numbers}))
    labels: dict[str, object] = {}
    for horizon_s, name in zip(SPEC.horizons_s, SPEC.label_columns, strict=True):
        reads = np.where(again, 1 + rng.poisson(2, n), 0)
        labels[name] = pa.array(reads, mask=as_of + horizon_s > UNTIL_S)
    next_s = pa.nulls(n, pa.int64())
    store.replace_arrow(SPEC.labels_table, pa.table({**keys, **labels, "next_access_s": next_s}))
    return store


def fit(tables: Tables, mlflow_at: Mlflow) -> train.TrainingReport:
    steps: list[tuple[int, int, str]] = []
    report = train.run(
        tables,
        spec=SPEC,
        region="emea",
        training=Knobs(),
        mlflow=mlflow_at,
        until_s=TRAIN_UNTIL_S,
        on_progress=lambda *step: steps.append(step),
    )
    assert steps[-1][0] == steps[-1][1]
    return report


def check_report(report: train.TrainingReport) -> None:
    assert len(report) == 4 * len(SPEC.horizons_s)
    for horizon_s in SPEC.horizons_s:
        rows = {row.model: row for row in report if row.horizon_s == horizon_s}
        assert set(rows) == {"recency", "decayed_frequency", "lightgbm", "hist_boosting"}
        assert rows["recency"].log_loss is None
        learned = [rows["lightgbm"], rows["hist_boosting"]]
        plain = [rows["recency"], rows["decayed_frequency"]]
        assert min(row.auc or 0 for row in learned) > max(row.auc or 1 for row in plain) + 0.1
        registered = [row.registered for row in learned if row.registered]
        assert registered == [f"{model_name('emea', horizon_s)}/1"]


@pytest.mark.service
def test_a_real_server_keeps_models_that_predict(spark: SparkSession, server: Mlflow, tables: Tables) -> None:
    report = fit(tables, server)
    check_report(report)
    metrics = tables.read_arrow(MODEL_METRICS).to_pylist()
    assert {row["run_id"] for row in metrics} == {row.run_id for row in report}
    curves = tables.read_arrow(RELIABILITY).to_pylist()
    assert {row["model"] for row in curves} == {"lightgbm", "hist_boosting"}
    check_run(server, tables, report)
    check_predictions(spark, server, tables)


def check_run(server: Mlflow, tables: Tables, report: train.TrainingReport) -> None:
    """A nested run holds what is needed to make the model again, and to understand it."""
    client = mlflow.tracking.MlflowClient(server.uri)
    row = next(row for row in report if row.model == "lightgbm")
    run = client.get_run(row.run_id)
    parent = client.get_run(run.data.tags["mlflow.parentRunId"])
    assert (run.info.status, parent.info.status) == ("FINISHED", "FINISHED")
    assert run.data.tags["features_snapshot"] == tables.snapshot(SPEC.features_table).id
    assert run.data.tags["package_version"]
    assert run.data.params["trees"] == "60"
    assert run.data.metrics["test_auc"] == pytest.approx(row.auc)
    assert "validation_log_loss" in run.data.metrics
    kept = {item.path for item in client.list_artifacts(row.run_id)}
    assert {"bundle.json", "calibration.png", "importance.csv"} <= kept
    gains = mlflow.artifacts.load_text(f"runs:/{row.run_id}/importance.csv").splitlines()
    assert gains[0] == "column,gain_share"
    assert {line.split(",")[0] for line in gains[1:3]} == {"recency_s", "gap_1_s"}


def check_predictions(spark: SparkSession, server: Mlflow, tables: Tables) -> None:
    last = (N_AS_OFS - 1) * HOUR
    snapshot = predict.run(spark, tables, spec=SPEC, region="emea", as_ofs=[last, last - HOUR], mlflow=server)
    assert snapshot.n_rows == 2 * len(SPEC.horizons_s) * N_FILES
    again = predict.run(spark, tables, spec=SPEC, region="emea", as_ofs=[last, last - HOUR], mlflow=server)
    assert again.id == snapshot.id
    found = tables.read_arrow(PREDICTIONS, as_of=as_of_label(last)).to_pandas()
    rows = tables.read_arrow(SPEC.features_table, as_of=as_of_label(last)).to_pandas()
    registry = Registry(server.uri, server.artifacts, server.experiment)
    served = [registry.load("emea", horizon_s) for horizon_s in SPEC.horizons_s]
    expected = score_frame(rows, [model.load() for model in served])
    key = ["did", "horizon_s"]
    for name in ("probability", "expected_accesses", "last_read_s", "size_bytes", "model_version"):
        left, right = (side.sort_values(key)[name].tolist() for side in (found, expected))
        assert left == right, name
    assert set(found["model_version"]) == {f"{model_name('emea', h)}/1" for h in SPEC.horizons_s}
    check_pyfunc(served[0].bundle.columns, rows, served[0].bundle.vocabulary)


def check_pyfunc(columns: tuple[str, ...], rows: object, vocabulary: dict[str, list[str]]) -> None:
    """Anyone with MLflow can load the model without this package's code."""
    generic = mlflow.pyfunc.load_model(f"models:/{model_name('emea', HOUR)}@candidate")
    answer = np.asarray(generic.predict(model_matrix(rows, SPEC, vocabulary, columns)))
    assert len(answer) == N_FILES


@pytest.mark.service
def test_a_model_is_refused_where_it_would_know_the_future(
    spark: SparkSession, server: Mlflow, tables: Tables
) -> None:
    with pytest.raises(ModelError, match="would know the future"):
        predict.run(spark, tables, spec=SPEC, region="emea", as_ofs=[0], mlflow=server)
    registry = Registry(server.uri, server.artifacts, server.experiment)
    model = registry.load("emea", HOUR)
    with pytest.raises(ModelError, match="other settings"):
        model.bundle.check(spec=FeatureSpec(**{**vars(SPEC), "n_gaps": 2}), region="emea")
    with pytest.raises(StaleInputError, match="cachecast train"):
        registry.load("emea", 77 * HOUR)
    with pytest.raises(StaleInputError, match="champion"):
        registry.load("emea", HOUR, "champion")
    with pytest.raises(StaleInputError, match="cachecast features"):
        predict.run(spark, tables, spec=SPEC, region="emea", as_ofs=[10**6 * HOUR], mlflow=server)


def test_sqlite_keeps_models_too(tables: Tables, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    local = Mlflow(f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"))
    check_report(fit(tables, local))
    model = Registry(local.uri, local.artifacts, local.experiment).load("emea", HOUR)
    assert TRAIN_UNTIL_S - HOUR <= model.bundle.trained_until_s <= TRAIN_UNTIL_S
    assert model.load().fitted.flavour == model.bundle.flavour
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_a_server_that_is_away_is_named_soon(host: str) -> None:
    start = time.monotonic()
    with pytest.raises(ServiceError, match=host):
        Registry(f"http://{host}:{free_port()}", "unused", "cachecast-test")
    assert time.monotonic() - start < 12


def test_too_few_days_are_a_model_error(tables: Tables, tmp_path: Path) -> None:
    local = Mlflow(f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"))
    with pytest.raises(ModelError, match="more days"):
        train.run(
            tables,
            spec=SPEC,
            region="emea",
            training=Knobs(),
            mlflow=local,
            until_s=4 * HOUR,
            on_progress=lambda *_: None,
        )
    with pytest.raises(StaleInputError, match="cachecast features"):
        train.run(
            tables,
            spec=SPEC,
            region="apac",
            training=Knobs(),
            mlflow=local,
            until_s=UNTIL_S,
            on_progress=lambda *_: None,
        )
