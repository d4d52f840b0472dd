"""Trainings that MLflow was away for, and uploads that broke off."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from daemons import free_ports
from planted_region import FIRST, MLFLOW_WARNINGS, Knobs, Mlflow, away, fit, registry

from features.common.errors import InputError, ServiceError
from features.results import MODEL_METRICS
from jobs.store.tables import Tables
from jobs.train import deliver
from jobs.train.deliver import TrainingAnswer
from models.serving import spool
from models.serving.mlflow_session import mlflow
from models.serving.registry import Registry
from models.serving.upload import upload

pytestmark = MLFLOW_WARNINGS


@pytest.mark.service
def test_a_training_waits_for_a_server_that_is_away(
    server: Mlflow, own_tables: Tables, trained: TrainingAnswer, tmp_path: Path
) -> None:
    assert trained.version == FIRST
    last = registry(server).version_at("emea", "candidate")
    assert last is not None
    waiting = Knobs(spool=str(tmp_path / "spool"))
    with pytest.raises(ServiceError, match="cachecast train --resume"):
        fit(own_tables, away(patience=2), waiting)
    assert own_tables.read_arrow(MODEL_METRICS).num_rows
    (answer,) = deliver.resume(own_tables, spool=waiting.spool, mlflow=server)
    assert answer.version == f"cachecast-emea/{int(last.rpartition('/')[2]) + 1}"
    assert registry(server).version_at("emea", "candidate") == answer.version
    assert {row["run_id"] for row in own_tables.read_arrow(MODEL_METRICS).to_pylist()} == {
        row.run_id for row in answer.models
    }
    with pytest.raises(InputError, match="no training waits"):
        deliver.resume(own_tables, spool=waiting.spool, mlflow=server)


@pytest.mark.service
def test_an_upload_that_broke_off_leaves_nothing_twice(
    server: Mlflow, own_tables: Tables, trained: TrainingAnswer, tmp_path: Path
) -> None:
    assert trained.version
    waiting = Knobs(spool=str(tmp_path / "spool"))
    with pytest.raises(ServiceError, match="--resume"):
        fit(own_tables, away(patience=1), waiting)
    (training,) = spool.waiting(Path(waiting.spool))
    with pytest.raises(ServiceError):  # MLflow refuses the name, after it has taken the runs
        upload(
            dataclasses.replace(training, region="no:name"),
            uri=server.uri,
            artifacts=server.artifacts,
            experiment=server.experiment,
        )
    answer = deliver.deliver(own_tables, training, server)
    client = mlflow.tracking.MlflowClient(server.uri)
    experiment = client.get_experiment_by_name(server.experiment)
    runs = client.search_runs([experiment.experiment_id], f"tags.`cachecast.id` = '{training.id}'")
    assert len(runs) == 1 + len(answer.models)


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_a_server_that_is_away_is_named_soon(host: str) -> None:
    start = time.monotonic()
    with pytest.raises(ServiceError, match=host):
        Registry(f"http://{host}:{free_ports(1)[0]}", "unused", "cachecast-test")
    assert time.monotonic() - start < 12
