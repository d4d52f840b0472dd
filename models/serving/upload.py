"""Uploads a spooled training to MLflow: its runs, and a registered version with its description."""

from __future__ import annotations

import dataclasses
import json

from models.serving.bundle_files import BUNDLE_FOLDER, bundle_digest
from models.serving.card import CARD_FILE, CARD_FOLDER
from models.serving.mlflow_session import LoggedModelOutput, check_place, connect, service_errors
from models.serving.names import model_name, version_name
from models.serving.registry import MAY_EVICT_TAG, MAY_PUSH_TAG, MODEL_TAG, UNTIL_TAG
from models.serving.runs import ID_TAG, Place, delete_runs, write
from models.serving.spool import Training

_VERSIONS = "mlflow.modelVersions"
"""MLflow's own tag of a model: the versions that register it."""
_UNJUDGED = dict.fromkeys((MAY_PUSH_TAG, MAY_EVICT_TAG), "no: not evaluated yet")


@dataclasses.dataclass(frozen=True)
class Uploaded:
    """An uploaded training: its version as `name/number`, and the ids of its nested runs, in order.

    `digest`: of the bundle's files, taken before the upload.
    """

    version: str
    digest: str
    run_ids: tuple[str, ...]


def upload(training: Training, *, uri: str, artifacts: str, experiment: str) -> Uploaded:
    """Upload `training` to MLflow, and register its bundle as a version.

    Repeated after a failure it starts again: what an earlier try left is deleted first. Raises ServiceError;
    the training then stays as it was.
    """
    client, experiment_id = connect(uri, artifacts, experiment)
    place = Place(client, uri, experiment_id, training.folder)
    digest = bundle_digest(training.folder / BUNDLE_FOLDER)
    with service_errors(uri):
        _delete_remains(place, training)
        written = write(
            place,
            training.run,
            written_id=training.id,
            made_by="train",
            makes=lambda run_id: _make_model(place, training, run_id),
        )
        version = _register(place, training, written.run_id, str(written.model_id))
        # Trainings of one moment differ by nothing else that people see first.
        client.update_run(written.run_id, name=f"v{version.rpartition('/')[2]} {training.run.name}")
    return Uploaded(version, digest, tuple(child.run_id for child in written.children))


def _make_model(place: Place, training: Training, run_id: str) -> str:
    """Give the run the bundle's files, and make the model in MLflow that the figures of runs are of."""
    client = place.client
    client.log_artifacts(run_id, str(training.folder / BUNDLE_FOLDER), BUNDLE_FOLDER)
    model = client.create_logged_model(
        place.experiment_id,
        name=f"{model_name(training.region)}-{training.id[:8]}",
        source_run_id=run_id,
        tags={ID_TAG: training.id, **training.run.tags, **_UNJUDGED},
        params=training.run.params,
        model_type="cachecast",
    )
    check_place(place.uri, str(model.artifact_location))
    client.log_model_artifacts(model.model_id, str(training.folder / CARD_FOLDER))
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    return str(model.model_id)


def _register(place: Place, training: Training, run_id: str, model_id: str) -> str:
    client, name = place.client, model_name(training.region)
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    tags = {ID_TAG: training.id, MODEL_TAG: model_id, UNTIL_TAG: training.run.params["until"], **_UNJUDGED}
    made = client.create_model_version(
        name,
        f"models:/{model_id}",
        run_id,
        tags={**training.run.tags, **tags},
        description=(training.folder / CARD_FOLDER / CARD_FILE).read_text(),
        model_id=model_id,
    )
    version = version_name(name, made.version)
    registered = json.dumps([{"name": name, "version": made.version}])
    client.set_logged_model_tags(model_id, {_VERSIONS: registered})
    return version


def _delete_remains(place: Place, training: Training) -> None:
    client = place.client
    for version in client.search_model_versions(f"name = '{model_name(training.region)}'"):
        if version.tags.get(ID_TAG) == training.id:
            client.delete_model_version(version.name, version.version)
    mine = f"tags.`{ID_TAG}` = '{training.id}'"
    for model in client.search_logged_models([place.experiment_id], mine):
        client.delete_logged_model(model.model_id)
    delete_runs(place, training.id)
