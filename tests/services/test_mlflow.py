"""Training, registering, loading and predicting against a real MLflow tracking server, and against SQLite."""

from __future__ import annotations

import contextlib
import dataclasses
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
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import requests

from features.errors import InputError, ModelError, ServiceError, StaleInputError
from features.results import (
    CHALLENGER_PLAN,
    CHAMPION_PLAN,
    DRIFT,
    EVALUATIONS,
    LRU,
    MODEL_HOLDINGS,
    MODEL_METRICS,
    MODEL_SLICES,
    PROMOTIONS,
    RELIABILITY,
    S3FIFO_PLAN,
)
from features.schema import PREDICTIONS, arrow_schema
from features.spec import FeatureSpec
from features.times import as_of_label, day_label
from jobs import deliver, predict, promote, train
from jobs.deliver import TrainingAnswer
from jobs.evaluation_record import contest, record
from jobs.settings import Settings
from jobs.tables import Tables
from models import spool
from models.frame import model_matrix
from models.mlflow_session import mlflow
from models.registry import Registry, model_name
from models.scoring import ServedModels
from models.upload import upload
from models.walk import Rivals, replay_rivals
from replay.config import CacheConfig
from replay.planner import Actions, CacheState
from replay.trace import Trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# MLflow's and its libraries' own deprecations; ours still fail.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlflow"),
]

HOUR, DAY = 3600, 86400
SPEC = FeatureSpec(
    cycle_s=HOUR,
    windows_s=(HOUR, 24 * HOUR),
    half_lives_s=(HOUR, 24 * HOUR),
    horizons_s=(HOUR, 3 * HOUR, 48 * HOUR),
    n_gaps=1,
    candidate_s=24 * HOUR,
    active_dataset_s=HOUR,
)
N_AS_OFS, N_FILES = 40, 120
UNTIL_S = N_AS_OFS * HOUR
TRAIN_UNTIL_S = UNTIL_S - 2 * HOUR
"""The last two as_ofs come after the training: predictions are made there."""
START_S = 60
BASELINES = {"recency", "decayed_frequency", "dataset_popularity", "s3fifo_counts"}
LEARNERS = {"lightgbm", "hist_boosting", "forest"}


@dataclass(frozen=True)
class Knobs:
    """The `[training]` settings, small."""

    spool: str
    max_rows: int = 4000
    test_share: float = 0.3
    learners: tuple[str, ...] = ("lightgbm", "hist_boosting", "forest")
    trees: int = 40
    search_trials: int = 3
    seed: int = 1


@dataclass(frozen=True)
class Mlflow:
    """The `[mlflow]` settings."""

    uri: str
    artifacts: str
    experiment: str = "cachecast-test"
    serve: tuple[str, ...] = ("champion", "candidate")
    patience: int = 20


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
    numbers["recency_s"] = pa.array(numbers["recency_s"], mask=rng.random(n) < 0.15)
    text = {name: ["AOD" if i % 2 else "RAW" for i in range(n)] for name in SPEC.categorical_columns}
    text["dataset"] = pa.nulls(n, pa.string())
    store.replace_arrow(SPEC.features_table, pa.table({**keys, **text, **numbers}))
    labels = {
        c.name: pa.nulls(n, arrow_schema(SPEC.labels_table).field(c.name).type)
        for c in SPEC.labels_table.columns
    }
    for horizon_s, name in zip(SPEC.horizons_s, SPEC.label_columns, strict=True):
        reads = np.where(again, 1 + rng.poisson(2, n), 0)
        labels[name] = pa.array(reads, mask=as_of + horizon_s > UNTIL_S)
    store.replace_arrow(SPEC.labels_table, pa.table({**labels, **keys}))
    return store


@pytest.fixture(scope="module")
def knobs(tmp_path_factory: pytest.TempPathFactory) -> Knobs:
    """The `[training]` settings with a spool of their own."""
    return Knobs(spool=str(tmp_path_factory.mktemp("spool")))


def fit(tables: Tables, mlflow_at: Mlflow, knobs: Knobs, until_s: int = TRAIN_UNTIL_S) -> TrainingAnswer:
    steps: list[tuple[int, int, str]] = []
    answer = train.run(
        tables,
        spec=SPEC,
        region="emea",
        training=knobs,
        mlflow=mlflow_at,
        until_s=until_s,
        on_progress=lambda *step: steps.append(step),
    )
    assert steps[-1][0] == steps[-1][1]
    assert not list(Path(knobs.spool).iterdir())
    return answer


def predictions(
    spark: SparkSession, tables: Tables, mlflow_at: Mlflow, *as_ofs: int, max_age_s: int = 1000 * HOUR
) -> predict.PredictAnswer:
    return predict.run(
        spark, tables, spec=SPEC, region="emea", as_ofs=as_ofs, mlflow=mlflow_at, max_age_s=max_age_s
    )


@pytest.fixture(scope="module")
def trained(server: Mlflow, tables: Tables, knobs: Knobs) -> TrainingAnswer:
    """The first training on the server: version 1."""
    return fit(tables, server, knobs)


def registry(at: Mlflow) -> Registry:
    return Registry(at.uri, at.artifacts, at.experiment)


def check_answer(answer: TrainingAnswer, version: str) -> None:
    """The best beats baselines; one per horizon serves; the far horizon is dropped, with the reason."""
    assert answer.version == version
    assert set(answer.dropped) == {"2d"}
    assert "too few" in answer.dropped["2d"]
    assert {row.horizon_s for row in answer.models} == {HOUR, 3 * HOUR}
    for horizon_s in (HOUR, 3 * HOUR):
        rows = {row.model: row for row in answer.models if row.horizon_s == horizon_s}
        assert set(rows) == {*BASELINES, *LEARNERS}
        assert all(rows[name].log_loss is None for name in BASELINES)
        learned = [rows[name].auc or 0 for name in LEARNERS]
        assert max(learned) > max(rows[name].auc or 1 for name in BASELINES) + 0.1
        assert sum(row.serves for row in rows.values()) == 1


@pytest.mark.service
def test_a_real_server_keeps_what_was_compared(
    server: Mlflow, tables: Tables, trained: TrainingAnswer
) -> None:
    check_answer(trained, "cachecast-emea/1")
    metrics = tables.read_arrow(MODEL_METRICS).to_pylist()
    assert {row["run_id"] for row in metrics} == {row.run_id for row in trained.models}
    assert {row["model"] for row in tables.read_arrow(RELIABILITY).to_pylist()} == set(LEARNERS)
    parts = {(row["weighting"], row["part"]) for row in tables.read_arrow(MODEL_SLICES).to_pylist()}
    assert parts >= {("byte", "all"), ("dataset", "cold"), ("file", "warm"), ("file", "tier AOD")}
    assert {row["capacity_fraction"] for row in tables.read_arrow(MODEL_HOLDINGS).to_pylist()} == {
        0.05,
        0.1,
        0.2,
    }
    client = mlflow.tracking.MlflowClient(server.uri)
    row = next(row for row in trained.models if row.model == "lightgbm")
    assert row.run_id is not None
    run = client.get_run(row.run_id)
    parent = client.get_run(run.data.tags["mlflow.parentRunId"])
    assert (run.info.status, parent.info.status) == ("FINISHED", "FINISHED")
    assert run.data.tags["features_snapshot"] == tables.snapshot(SPEC.features_table).id
    assert {one.dataset.name for one in parent.inputs.dataset_inputs} == {"features", "labels"}
    assert run.data.tags["package_version"]
    assert run.data.params["trees"] == "40"
    assert run.data.metrics["test_auc"] == pytest.approx(row.auc)
    assert {"validation_log_loss", "byte/cold/auc", "file/at_10pct/recall"} <= set(run.data.metrics)
    check_artifacts(client, row.run_id, next(str(r.run_id) for r in trained.models if r.model == "forest"))


def check_artifacts(client: mlflow.tracking.MlflowClient, boosted: str, forest: str) -> None:
    """A nested run holds what is needed to understand the model, and the model itself."""
    kept = {item.path for item in client.list_artifacts(boosted)}
    assert {"calibration.png", "roc.png", "precision_recall.png", "importance.csv", "model"} <= kept
    for run_id in (boosted, forest):
        gains = mlflow.artifacts.load_text(f"runs:/{run_id}/importance.csv").splitlines()
        assert gains[0] == "column,gain_share"
        assert {line.split(",")[0] for line in gains[1:3]} == {"recency_s", "gap_1_s"}
        loaded = mlflow.pyfunc.load_model(f"runs:/{run_id}/model")
        example = loaded.input_example
        assert len(np.asarray(loaded.predict(example))) == len(example)
        assert loaded.metadata.signature.inputs.input_names() == list(example.columns)


@pytest.mark.service
def test_spark_predicts_as_the_bundle_says(
    spark: SparkSession, server: Mlflow, tables: Tables, trained: TrainingAnswer
) -> None:
    last = (N_AS_OFS - 1) * HOUR
    answer = predictions(spark, tables, server, last, last - HOUR)
    assert answer.snapshot.n_rows == 2 * 2 * N_FILES
    assert answer.model_version == trained.version
    assert predictions(spark, tables, server, last, last - HOUR).snapshot.id == answer.snapshot.id
    found = tables.read_arrow(PREDICTIONS, as_of=as_of_label(last)).to_pandas()
    rows = tables.read_arrow(SPEC.features_table, as_of=as_of_label(last))
    served = registry(server).load("emea", ["candidate"])
    assert [model.within for model in served.bundle.models] == ["1h", "3h"]
    (batch,) = rows.combine_chunks().to_batches()
    expected = pa.Table.from_batches(served.load().predictions(batch)).to_pandas()
    key = ["did", "horizon_s"]
    for name in ("probability", "expected_accesses", "last_read_s", "size_bytes", "model_version"):
        left, right = (side.sort_values(key)[name].to_numpy() for side in (found, expected))
        np.testing.assert_array_equal(left, right, err_msg=name)
    check_without_this_package(server, served, rows.to_pandas())


def check_without_this_package(at: Mlflow, served: ServedModels, rows: pd.DataFrame) -> None:
    """Anyone with MLflow can load the bundle's models without this package's code."""
    bundle = served.bundle
    client = mlflow.tracking.MlflowClient(at.uri)
    run_id = client.get_model_version_by_alias(model_name("emea"), "candidate").run_id
    generic = mlflow.pyfunc.load_model(f"runs:/{run_id}/bundle/1h")
    answer = np.asarray(generic.predict(model_matrix(rows, SPEC, bundle.vocabulary, bundle.columns)))
    assert len(answer) == N_FILES


@pytest.mark.service
def test_drift_is_told_where_the_features_have_moved(
    spark: SparkSession, server: Mlflow, tables: Tables, trained: TrainingAnswer
) -> None:
    last = (N_AS_OFS - 1) * HOUR
    moved = tables.read_arrow(SPEC.features_table, as_of=as_of_label(last))
    at = moved.column_names.index("recency_s")
    later = (N_AS_OFS + 5) * HOUR
    label = pa.array([as_of_label(later)] * len(moved))
    moved = moved.set_column(at, "recency_s", pc.add(moved["recency_s"], 40.0 * HOUR))
    moved = moved.set_column(moved.column_names.index("as_of"), "as_of", label)
    moved = moved.set_column(
        moved.column_names.index("day"), "day", pa.array([day_label(later)] * len(moved))
    )
    tables.replace_arrow(SPEC.features_table, moved)
    steady, shifted = (predictions(spark, tables, server, as_of) for as_of in (last, later))
    assert trained.version == steady.model_version
    assert not steady.alarms
    (alarm,) = shifted.alarms
    assert "recency_s" in alarm
    found = {row["column"]: row for row in tables.read_arrow(DRIFT, as_of=as_of_label(later)).to_pylist()}
    assert {name for name, row in found.items() if row["drifted"]} >= {"recency_s"}
    assert found["gap_1_s"]["psi"] < 0.25
    assert "probability_1h" in found


@pytest.mark.service
def test_no_model_is_used_where_it_must_not_be(
    spark: SparkSession, server: Mlflow, tables: Tables, trained: TrainingAnswer
) -> None:
    last = (N_AS_OFS - 1) * HOUR
    assert trained.version
    before = tables.snapshot(PREDICTIONS).id
    with pytest.raises(ModelError, match=r"no plan: caches run plain LRU.*would know the future"):
        predictions(spark, tables, server, 0)
    with pytest.raises(StaleInputError, match=r"plain LRU.*max_age"):
        predictions(spark, tables, server, last, max_age_s=HOUR // 2)
    with pytest.raises(StaleInputError, match=r"plain LRU.*champion; train, evaluate and promote"):
        predictions(spark, tables, dataclasses.replace(server, serve=("champion",)), last)
    with pytest.raises(StaleInputError, match="cachecast features"):
        predictions(spark, tables, server, 10**6 * HOUR)
    bundle = registry(server).load("emea", ["champion", "candidate"]).bundle
    with pytest.raises(ModelError, match="other settings"):
        bundle.check(spec=FeatureSpec(**{**vars(SPEC), "n_gaps": 2}), region="emea")
    with pytest.raises(ModelError, match="none of the horizons 2d"):
        bundle.check(spec=dataclasses.replace(SPEC, horizons_s=(48 * HOUR,)), region="emea")
    assert tables.snapshot(PREDICTIONS).id == before


@pytest.mark.service
def test_a_training_waits_for_a_server_that_is_away(
    server: Mlflow, tables: Tables, trained: TrainingAnswer, tmp_path: Path
) -> None:
    assert trained.version == "cachecast-emea/1"
    away = Mlflow(f"http://127.0.0.1:{free_port()}", "unused", patience=2)
    waiting = Knobs(spool=str(tmp_path / "spool"), learners=("lightgbm",))
    with pytest.raises(ServiceError, match="cachecast train --resume"):
        fit(tables, away, waiting)
    assert tables.read_arrow(MODEL_METRICS).num_rows
    (answer,) = deliver.resume(tables, spool=waiting.spool, mlflow=server)
    assert answer.version == "cachecast-emea/2"
    assert registry(server).version_at("emea", "candidate") == "cachecast-emea/2"
    assert {row["run_id"] for row in tables.read_arrow(MODEL_METRICS).to_pylist()} == {
        row.run_id for row in answer.models
    }
    with pytest.raises(InputError, match="no training waits"):
        deliver.resume(tables, spool=waiting.spool, mlflow=server)


@pytest.mark.service
def test_an_upload_that_broke_off_leaves_nothing_twice(
    server: Mlflow, tables: Tables, trained: TrainingAnswer, tmp_path: Path
) -> None:
    assert trained.version
    away = Mlflow(f"http://127.0.0.1:{free_port()}", "unused", patience=1)
    waiting = Knobs(spool=str(tmp_path / "spool"), learners=("lightgbm",))
    with pytest.raises(ServiceError, match="--resume"):
        fit(tables, away, waiting)
    (training,) = spool.waiting(Path(waiting.spool))
    with pytest.raises(ServiceError):  # MLflow refuses the name, after it has taken the runs
        upload(
            dataclasses.replace(training, region="no:name"),
            uri=server.uri,
            artifacts=server.artifacts,
            experiment=server.experiment,
        )
    answer = deliver.deliver(tables, training, server)
    client = mlflow.tracking.MlflowClient(server.uri)
    experiment = client.get_experiment_by_name(server.experiment)
    runs = client.search_runs([experiment.experiment_id], f"tags.`cachecast.training` = '{training.id}'")
    assert len(runs) == 1 + len(answer.models)


def test_sqlite_keeps_models_too(
    tables: Tables, knobs: Knobs, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    local = Mlflow(f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"))
    check_answer(fit(tables, local, knobs), "cachecast-emea/1")
    served = registry(local).load("emea", ["candidate"])
    for model in served.bundle.models:
        assert TRAIN_UNTIL_S - model.horizon_s <= model.trained_until_s <= TRAIN_UNTIL_S
    assert len(served.load().fitted) == 2
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_a_server_that_is_away_is_named_soon(host: str) -> None:
    start = time.monotonic()
    with pytest.raises(ServiceError, match=host):
        Registry(f"http://{host}:{free_port()}", "unused", "cachecast-test")
    assert time.monotonic() - start < 12


def test_too_few_days_are_a_model_error(tables: Tables, knobs: Knobs, tmp_path: Path) -> None:
    nowhere = Mlflow(f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"))
    with pytest.raises(ModelError, match=r"no horizon can be trained.*more days"):
        fit(tables, nowhere, knobs, until_s=2 * HOUR)
    with pytest.raises(StaleInputError, match="cachecast features"):
        fit(tables, nowhere, knobs, until_s=-10 * HOUR)
    assert not list(Path(knobs.spool).iterdir())


def evaluate(store: Tables, challenger: str, as_of_s: int, *, saving: int, champion: str | None) -> None:
    """A made-up evaluation of 28 days: the challenger saves `saving` bytes a day against every rival."""
    rng = np.random.default_rng(as_of_s)
    mine = 1000 + rng.integers(0, 100, 28)
    plans = {CHALLENGER_PLAN: challenger, LRU: None, S3FIFO_PLAN: None}
    if champion is not None:
        plans[CHAMPION_PLAN] = champion
    rows = []
    for policy, scored_by in plans.items():
        wan = mine if policy == CHALLENGER_PLAN else mine + saving + rng.integers(-10, 11, 28)
        for i, wan_bytes in enumerate(wan.tolist()):
            zero = dict.fromkeys(("hit_bytes", "requests", "hits", "prefetch_bytes", "wasted_bytes"), 0)
            where = {"capacity_fraction": 0.1, "on_day": day_label(as_of_s - (28 - i) * 86400)}
            what = {"model_version": challenger, "policy": policy, "scored_by": scored_by}
            rows.append({**what, **where, "wan_bytes": wan_bytes, **zero})
    store.replace_rows(EVALUATIONS, rows, (day_label(as_of_s), as_of_label(as_of_s), "emea"))


def test_the_champion_follows_from_evaluations_and_can_be_taken_back(tables: Tables, tmp_path: Path) -> None:
    local = Mlflow(f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"))
    small = Knobs(spool=str(tmp_path / "spool"), learners=("lightgbm",), trees=5)
    first, second = (fit(tables, local, small).version for _ in range(2))
    store, at = Tables(str(tmp_path / "tables")), registry(local)

    def champion() -> str | None:
        return at.version_at("emea", "champion")

    def decide(now_s: int) -> promote.Promotion:
        return promote.run(store, region="emea", mlflow=local, max_age_s=90 * DAY, now_s=now_s, min_days=21)

    with pytest.raises(StaleInputError, match="cachecast evaluate"):
        decide(0)
    with pytest.raises(StaleInputError, match="never had a champion"):
        promote.rollback(store, region="emea", mlflow=local, now_s=0)
    evaluate(store, first, 40 * DAY, saving=0, champion=None)
    assert (decide(1).action, champion()) == ("refuse", None)
    evaluate(store, first, 41 * DAY, saving=300, champion=None)
    assert (decide(2).champion, champion()) == (first, first)
    assert (decide(3).action, champion()) == ("promote", first)
    evaluate(store, second, 42 * DAY, saving=300, champion="cachecast-emea/9")
    assert "evaluate again" in decide(4).reasons[0]
    evaluate(store, second, 43 * DAY, saving=300, champion=first)
    assert (decide(5).champion, champion()) == (second, second)
    told = promote.why(store, region="emea")
    assert (told.action, told.model_version, told.evaluated_as_of) == (
        "promote",
        second,
        as_of_label(43 * DAY),
    )
    assert {one.against for one in told.comparisons} == {LRU, S3FIFO_PLAN, CHAMPION_PLAN}
    tags = mlflow.tracking.MlflowClient(local.uri).get_model_version(*second.split("/")).tags
    assert (tags["decision"], tags["evaluated_as_of"]) == ("promote", as_of_label(43 * DAY))
    check_rollback(store, local, first, second)


def check_rollback(store: Tables, local: Mlflow, first: str, second: str) -> None:
    at = registry(local)
    at.point("champion", first, tags={})  # by hand: the records know of the second
    assert promote.rollback(store, region="emea", mlflow=local, now_s=6).champion == second
    assert at.version_at("emea", "champion") == second
    assert promote.rollback(store, region="emea", mlflow=local, now_s=7).champion == first
    assert at.version_at("emea", "champion") == first
    assert promote.rollback(store, region="emea", mlflow=local, now_s=8).champion is None
    assert at.version_at("emea", "champion") is None
    with pytest.raises(StaleInputError, match="never had a champion"):
        promote.rollback(store, region="emea", mlflow=local, now_s=9)
    actions = [row["action"] for row in store.read_arrow(PROMOTIONS).sort_by("as_of").to_pylist()]
    assert actions == ["refuse", "promote", "promote", "refuse", "promote", "rollback", "rollback"]


def test_a_champion_too_old_to_serve_is_no_rival(tables: Tables, tmp_path: Path) -> None:
    local = Mlflow(f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"))
    small = Knobs(spool=str(tmp_path / "spool"), learners=("lightgbm",), trees=5)
    old, new = (fit(tables, local, small).version for _ in range(2))
    store = Tables(str(tmp_path / "tables"))
    registry(local).point("champion", old, tags={})
    evaluate(store, new, 40 * DAY, saving=300, champion=None)
    found = promote.run(store, region="emea", mlflow=local, max_age_s=90 * DAY, now_s=1, min_days=21)
    assert (found.action, found.champion) == ("refuse", old)
    found = promote.run(store, region="emea", mlflow=local, max_age_s=20 * DAY, now_s=2, min_days=21)
    assert (found.action, found.champion) == ("promote", new)
    assert "so it is no rival" in found.reasons[0]


class Idle:
    """Plans nothing."""

    def actions(self, state: CacheState) -> Actions:
        none = np.zeros(0, np.int64)
        return Actions(none, none, none, none)


def walked(days: int) -> Rivals:
    """A replay of `days` days after one of warming, by planners that plan nothing."""
    rng = np.random.default_rng(3)
    time_s = np.sort(rng.integers(0, (days + 1) * DAY, 4000))
    reads = Trace(time_s, rng.zipf(1.3, 4000) % 80, np.full(80, 100))
    plans = {CHALLENGER_PLAN: Idle(), S3FIFO_PLAN: Idle(), CHAMPION_PLAN: Idle()}
    told = {"capacity_fraction": 0.1, "cycle_s": DAY, "from_s": DAY}
    return replay_rivals(reads, CacheConfig(800), plans, **told, on_done=lambda name: None)


def test_a_walk_is_recorded_for_its_candidate_and_promotion_decides_by_it(
    tables: Tables, tmp_path: Path
) -> None:
    local = Mlflow(f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"))
    small = Knobs(spool=str(tmp_path / "spool"), learners=("lightgbm",), trees=5)
    (tmp_path / "site.toml").write_text(
        f'region = {{ name = "emea" }}\nplan = {{ horizon = "1h" }}\n'
        f'[mlflow]\nuri = "{local.uri}"\nartifacts = "{local.artifacts}"\nexperiment = "cachecast-test"\n'
        '[features]\ncycle = "1h"\nwindows = ["1h", "1d"]\nhalf_lives = ["1h", "1d"]\nn_gaps = 1\n'
        'horizons = ["1h", "3h", "2d"]\ncandidates = "1d"\nactive_datasets = "1h"\n'
    )
    settings = Settings.load(tmp_path / "site.toml", tables=str(tmp_path / "tables"), env={})
    nobody = contest(settings, from_s=0)
    assert (nobody.candidate, nobody.champion) == (None, None)
    assert "nothing is recorded" in nobody.notes[0]
    first, at = fit(tables, local, small).version, registry(local)
    at.point("champion", first, tags={})
    second = fit(tables, local, small).version
    seen = contest(settings, from_s=TRAIN_UNTIL_S - 1)
    assert seen.champion is None
    assert "has seen accesses until" in seen.notes[0]
    known = contest(settings, from_s=TRAIN_UNTIL_S)
    assert known.champion is not None
    assert (known.candidate, known.champion.version) == (second, first)

    rivals = walked(days=22)
    record(settings, known, [rivals], last_day_s=22 * DAY)
    store = Tables(settings.tables.root)
    rows = store.read_arrow(EVALUATIONS, as_of=as_of_label(23 * DAY), owner="emea").to_pylist()
    by_policy = {row["policy"]: row["scored_by"] for row in rows}
    assert by_policy[CHALLENGER_PLAN] == second
    assert by_policy[CHAMPION_PLAN] == first
    assert by_policy[LRU] is None
    client = mlflow.tracking.MlflowClient(local.uri)
    run_id = client.get_model_version_by_alias(model_name("emea"), "candidate").run_id
    figures = client.get_run(str(run_id)).data.metrics
    name = "walk/lru_challenger/at_10pct"
    assert figures[f"{name}/wan_bytes"] == rivals.replayed[CHALLENGER_PLAN].result.wan_bytes
    assert figures[f"{name}/byte_gap_closed"] == 0
    decision = promote.run(store, region="emea", mlflow=local, max_age_s=90 * DAY, now_s=0, min_days=21)
    assert decision.action == "refuse"
    assert {one.against for one in decision.comparisons} == {LRU, S3FIFO_PLAN, CHAMPION_PLAN}
    assert all(one.n_days == 22 for one in decision.comparisons)
