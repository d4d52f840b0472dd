"""Writes runs to MLflow: trainings, evaluations and replays all go through `write`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from features.common.errors import ServiceError, bounded, printable, without_login
from features.common.times import DAY_S
from models.serving.mlflow_session import MlflowClient, check_place, mlflow

ID_TAG, KIND_TAG = "cachecast.id", "kind"
"""Tags of every run: the id that runs written together share, and the run's `kind`."""
_PARENT, _SOURCE, _COMMIT = "mlflow.parentRunId", "mlflow.source.name", "mlflow.source.git.commit"
_NOTE = "mlflow.note.content"
"""The tag that MLflow shows as the description of a run."""
_PARAMS_AT_ONCE, _METRICS_AT_ONCE = 100, 1000
"""The most that MLflow takes in a request."""
_DIGEST_CHARS = 36
_TEXT_CHARS = 6000
"""The longest parameter or tag that MLflow takes."""
_NAME_CHARS = 250
_MOST_RUNS = 100_000
"""The most that are written together."""
_ABANDONED_S = DAY_S
"""A run is written within minutes, at the end of the work; one that runs longer was killed."""


@dataclasses.dataclass(frozen=True)
class TableRead:
    """A table that a run read, at a `commit` of it. `n_rows`: the rows that were used; None: not counted."""

    name: str
    commit: str
    n_rows: int | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """A run with its nested ones. `kind`: training, model, evaluation, replay or policy.

    `days`: by name, the figures of consecutive days from `first_day_s` on; they become steps. `model_id`: the
    model in MLflow that the figures describe. `folder`: the folder of its files, relative to `Place.root`.
    `says`: the result, in sentences.
    """

    name: str
    kind: str
    params: dict[str, str] = dataclasses.field(default_factory=dict)
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    days: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    first_day_s: int = 0
    tables: tuple[TableRead, ...] = ()
    model_id: str | None = None
    folder: str | None = None
    children: tuple[Run, ...] = ()
    says: str = ""


class Written(NamedTuple):
    """A written run: its id in MLflow, the id of the model of its figures, and its nested runs, in order."""

    run_id: str
    model_id: str | None
    children: tuple[Written, ...]


@dataclasses.dataclass(frozen=True)
class Place:
    """An experiment of the MLflow at `uri`; `root`: folder that the runs' own folders are relative to."""

    client: MlflowClient
    uri: str
    experiment_id: str
    root: Path


def write(
    place: Place, run: Run, *, written_id: str, made_by: str, makes: Callable[[str], str] | None = None
) -> Written:
    """Write `run` and the runs nested in it; those that an earlier try left under `written_id` are deleted.

    `made_by`: the command, as MLflow's source of the run; `makes`: creates the model of a run, given the
    run's id, and returns the model's id; None: no model is created. A run that cannot be written to its
    end is `FAILED`. Raises MLflow's errors, and ServiceError if its files would go elsewhere.
    """
    before_ms = int((time.time() - _ABANDONED_S) * 1000)
    abandoned = f"attributes.status = 'RUNNING' AND attributes.start_time < {before_ms}"
    for left in place.client.search_runs([place.experiment_id], f"{abandoned} AND tags.`{ID_TAG}` LIKE '%'"):
        place.client.set_terminated(left.info.run_id, "KILLED")  # so was its command
    delete_runs(place, written_id)
    common = {ID_TAG: written_id, _SOURCE: made_by}
    if (sha := code_version().get("git_sha")) is not None:
        common[_COMMIT] = sha
    return _write(place, run, common, makes)


def delete_runs(place: Place, written_id: str) -> None:
    """Delete the runs that were written together. Raises ServiceError if MLflow goes on listing them."""
    deleted: set[str] = set()
    while runs := place.client.search_runs([place.experiment_id], f"tags.`{ID_TAG}` = '{written_id}'"):
        for run in runs:
            if run.info.run_id in deleted or len(deleted) >= _MOST_RUNS:
                raise ServiceError(f"MLflow at {without_login(place.uri)} still lists runs that were deleted")
            place.client.delete_run(run.info.run_id)
            deleted.add(run.info.run_id)


def _write(
    place: Place, run: Run, common: Mapping[str, str], makes: Callable[[str], str] | None = None
) -> Written:
    note = {_NOTE: run.says} if run.says else {}
    tags = {name: _text(value) for name, value in {**run.tags, **note}.items()}
    created = place.client.create_run(
        place.experiment_id,
        tags={**common, **tags, KIND_TAG: run.kind},
        run_name=_text(run.name, _NAME_CHARS),
    )
    run_id = str(created.info.run_id)
    try:
        written = _fill(place, run, run_id, common, makes)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is raised
            place.client.set_terminated(run_id, "FAILED")
        raise
    place.client.set_terminated(run_id)
    return written


def _fill(
    place: Place, run: Run, run_id: str, common: Mapping[str, str], makes: Callable[[str], str] | None
) -> Written:
    client = place.client
    check_place(place.uri, str(client.get_run(run_id).info.artifact_uri))
    params = [mlflow.entities.Param(key, _text(value)) for key, value in run.params.items()]
    model_id = run.model_id if makes is None else makes(run_id)
    points = list(_points(run, model_id))
    for start in range(0, len(params), _PARAMS_AT_ONCE):
        client.log_batch(run_id, params=params[start : start + _PARAMS_AT_ONCE])
    for start in range(0, len(points), _METRICS_AT_ONCE):
        client.log_batch(run_id, metrics=points[start : start + _METRICS_AT_ONCE])
    models = None if run.model_id is None else [mlflow.entities.LoggedModelInput(run.model_id)]
    if run.tables or models:
        context = "training" if run.kind == "training" else "evaluation"
        client.log_inputs(run_id, [_dataset(table, context) for table in run.tables], models)
    if run.folder is not None:
        client.log_artifacts(run_id, str(place.root / run.folder))
    nested = tuple(_write(place, child, {**common, _PARENT: run_id}) for child in run.children)
    return Written(run_id, model_id, nested)


def _text(value: str, most_chars: int = _TEXT_CHARS) -> str:
    """`value`, printable and bounded, so that every database takes it: names of files may hold any bytes."""
    return bounded(printable(value), most_chars)


def _points(run: Run, model_id: str | None) -> Iterator[mlflow.entities.Metric]:
    """The figures of `run`, without those that are NaN or infinite."""
    now_ms = int(time.time() * 1000)
    for name, value in run.metrics.items():
        if math.isfinite(value):
            yield mlflow.entities.Metric(name, value, now_ms, 0, model_id=model_id)
    for name, values in run.days.items():
        for step, value in enumerate(values):
            yield mlflow.entities.Metric(name, value, (run.first_day_s + step * DAY_S) * 1000, step)


def _dataset(table: TableRead, context: str) -> mlflow.entities.DatasetInput:
    dataset = mlflow.entities.Dataset(
        name=table.name,
        digest=table.commit[:_DIGEST_CHARS],
        source_type="cachecast",
        source=json.dumps({"table": table.name, "snapshot": table.commit}),
        profile=None if table.n_rows is None else json.dumps({"num_rows": table.n_rows}),
    )
    return mlflow.entities.DatasetInput(dataset, [mlflow.entities.InputTag("mlflow.data.context", context)])


def code_version() -> dict[str, str]:
    """`package_version`, and `git_sha` if the package is of a git checkout with a commit."""
    version = {"package_version": importlib.metadata.version("cachecast")}
    if shutil.which("git") is None:
        return version
    file = Path(__file__)

    def git(*words: str) -> str:
        answer = subprocess.run(
            ["git", *words], cwd=file.parent, capture_output=True, text=True, check=False, timeout=10
        )
        return answer.stdout.strip()

    # A virtual environment may be in the checkout of another project.
    sha = git("rev-parse", "--verify", "--quiet", "HEAD") if git("ls-files", file.name) else ""
    return version | ({"git_sha": sha} if sha else {})
