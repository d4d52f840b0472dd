"""A spooled training into MLflow: a parent run, a nested one per model and horizon, a registered version."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping

from models.serving.bundle_files import BUNDLE_FOLDER, bundle_digest
from models.serving.mlflow_session import (
    Dataset,
    DatasetInput,
    Metric,
    MlflowClient,
    Param,
    RunTag,
    connect,
    service_errors,
)
from models.serving.names import CANDIDATE, model_name
from models.serving.registry import DIGEST_PARAM, UNTIL_TAG
from models.serving.spool import Training

TRAINING_TAG = "cachecast.training"
_PARENT, _SOURCE = "mlflow.parentRunId", "mlflow.source.name"
"""MLflow's own tags: a nested run's parent, and what made a run."""
SNAPSHOT_TAGS = ("features_snapshot", "labels_snapshot")
_BATCH = 90
"""MLflow takes at most 100 parameters or tags in a request, and 1000 metrics."""
_DIGEST_CHARS = 36


@dataclasses.dataclass(frozen=True)
class Uploaded:
    """What MLflow made of a training: the version as `name/number`, and the nested runs' ids in order."""

    version: str
    run_ids: tuple[str, ...]


def upload(training: Training, *, uri: str, artifacts: str, experiment: str) -> Uploaded:
    """Bring `training` into MLflow, register its bundle and move the alias `candidate` to it.

    Repeated after a failure it starts anew: runs that an earlier try left are deleted first. Raises
    ServiceError; the training then is as it was.
    """
    client, experiment_id = connect(uri, artifacts, experiment)
    digest = bundle_digest(training.folder / BUNDLE_FOLDER)
    with service_errors(uri):
        _delete_remains(client, experiment_id, training)
        common = {TRAINING_TAG: training.id, _SOURCE: "cachecast train", **training.tags}
        parent = _begin(client, experiment_id, training.name, common)
        _log(client, parent, params={**training.params, DIGEST_PARAM: digest}, metrics={})
        client.log_inputs(parent, _inputs(training.tags))
        run_ids = []
        for run in training.runs:
            run_id = _begin(client, experiment_id, run.name, {**common, **run.tags, _PARENT: parent})
            _log(client, run_id, params=run.params, metrics=run.metrics)
            client.log_artifacts(run_id, str(training.folder / run.folder))
            client.set_terminated(run_id)
            run_ids.append(run_id)
        client.log_artifacts(parent, str(training.folder / BUNDLE_FOLDER), BUNDLE_FOLDER)
        version = _register(client, training, parent)
        client.set_terminated(parent)
    return Uploaded(version, tuple(run_ids))


def _register(client: MlflowClient, training: Training, run_id: str) -> str:
    name = model_name(training.region)
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    source = f"{client.get_run(run_id).info.artifact_uri}/{BUNDLE_FOLDER}"
    made = client.create_model_version(
        name, source, run_id, tags={TRAINING_TAG: training.id, UNTIL_TAG: training.params["until"]}
    )
    client.set_registered_model_alias(name, CANDIDATE, made.version)
    return f"{name}/{made.version}"


def _delete_remains(client: MlflowClient, experiment_id: str, training: Training) -> None:
    mine = f"tags.`{TRAINING_TAG}` = '{training.id}'"
    for version in client.search_model_versions(f"name = '{model_name(training.region)}'"):
        if version.tags.get(TRAINING_TAG) == training.id:
            client.delete_model_version(version.name, version.version)
    while found := client.search_runs([experiment_id], mine):
        for run in found:
            client.delete_run(run.info.run_id)


def _begin(client: MlflowClient, experiment_id: str, name: str, tags: Mapping[str, str]) -> str:
    run = client.create_run(experiment_id, run_name=name)
    _log(client, run.info.run_id, params={}, metrics={}, tags=tags)
    return str(run.info.run_id)


def _log(
    client: MlflowClient,
    run_id: str,
    *,
    params: Mapping[str, str],
    metrics: Mapping[str, float],
    tags: Mapping[str, str] | None = None,
) -> None:
    now_ms = int(time.time() * 1000)
    kept = [
        *(Param(key, value) for key, value in params.items()),
        *(Metric(key, value, now_ms, 0) for key, value in metrics.items()),
        *(RunTag(key, value) for key, value in (tags or {}).items()),
    ]
    for start in range(0, len(kept), _BATCH):
        part = kept[start : start + _BATCH]
        client.log_batch(
            run_id,
            metrics=[one for one in part if isinstance(one, Metric)],
            params=[one for one in part if isinstance(one, Param)],
            tags=[one for one in part if isinstance(one, RunTag)],
        )


def _inputs(tags: Mapping[str, str]) -> list[DatasetInput]:
    """The tables that were learned from, as MLflow's own kind of record."""
    return [
        DatasetInput(
            Dataset(
                name=key.removesuffix("_snapshot"),
                digest=tags[key][:_DIGEST_CHARS],
                source_type="cachecast",
                source=json.dumps({"snapshot": tags[key]}),
            )
        )
        for key in SNAPSHOT_TAGS
        if key in tags
    ]
