"""Deliver a training from the spool to MLflow and the tables of metrics, at its end or by `--resume`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from features.common.errors import ConflictError, InputError, ServiceError
from features.results import MODEL_HOLDINGS, MODEL_METRICS, MODEL_SLICES, RELIABILITY
from features.schema import Table
from jobs.ground.settings.tree import MlflowSettings
from jobs.ground.store.keys import MomentKey
from jobs.ground.store.locks import exclusive
from jobs.ground.store.tables import Tables
from jobs.loop.train.registry import registry
from jobs.loop.trainings import keep_training, trained_versions
from models.serving.mlflow_session import patiently
from models.serving.spool import Training, upload, waiting, waiting_folders
from models.serving.versions import CANDIDATE
from models.training.recording import ModelReport


@dataclasses.dataclass(frozen=True)
class TrainingAnswer:
    """The result of a training. `version`: in MLflow, like `cachecast-emea/3`.

    `is_candidate`: whether it is the region's new candidate. `dropped`: horizons without a model, and why;
    `by_recency`: horizons that recency serves, and why; `order`: of eviction, in words, None without one;
    `no_order`: the reason, if there is none. `n_waiting`: trainings in the spool for `train --resume`.
    """

    version: str
    is_candidate: bool
    dropped: dict[str, str]
    by_recency: dict[str, str]
    order: str | None
    no_order: str | None
    models: list[ModelReport]
    n_waiting: int


def deliver(
    tables: Tables, training: Training, mlflow: MlflowSettings, *, is_new: bool = True
) -> TrainingAnswer:
    """Upload `training`, write its metrics and its digest into the tables, and delete it from the spool.

    It becomes the region's candidate, unless it is not `is_new` and a later one was delivered before it.
    Raises ServiceError if MLflow stays unavailable for `patience` seconds: the metrics are then in the tables
    without run ids, and the training stays in the spool. Raises ConflictError if another command delivers it,
    or replaces the same metrics.
    """
    lock = training.folder.with_suffix(".lock")
    with exclusive(lock, "delivery of a training"):
        if training.folder.exists():
            answer = _deliver(tables, training, mlflow, is_new=is_new)
            lock.unlink()
            return answer
        lock.unlink()
    raise ConflictError(f"another command has delivered the training in {training.folder}")


def _deliver(tables: Tables, training: Training, mlflow: MlflowSettings, *, is_new: bool) -> TrainingAnswer:
    answer, region = training.answer, training.region
    until_s, reports = int(answer["until_s"]), [ModelReport(**row) for row in answer["models"]]
    kept_in = (
        f"the training is complete and kept in {training.folder}: when MLflow is available, run "
        "`cachecast train --resume`"
    )
    try:
        done = patiently(
            lambda: upload(
                training, uri=mlflow.uri, artifacts=mlflow.artifacts, experiment=mlflow.experiment
            ),
            patience_s=mlflow.patience,
        )
    except ServiceError as error:
        _write(tables, training, reports)
        raise ServiceError(f"{error}; {kept_in}") from error
    reports_with_runs = [
        dataclasses.replace(report, run_id=run_id)
        for report, run_id in zip(reports, done.run_ids, strict=True)
    ]
    _write(tables, training, reports_with_runs)
    later = [one for one in trained_versions(tables, region=region).values() if one.until_s > until_s]
    keep_training(tables, region=region, until_s=until_s, version=done.version, digest=done.digest)
    is_candidate = is_new or not later
    if is_candidate:  # last, as a version without its row in the table trainings is not read
        try:
            patiently(
                lambda: registry(mlflow).point(CANDIDATE, done.version, tags={}), patience_s=mlflow.patience
            )
        except ServiceError as error:
            raise ServiceError(f"{error}; {kept_in}") from error
    training.remove()
    return TrainingAnswer(
        version=done.version,
        is_candidate=is_candidate,
        models=reports_with_runs,
        n_waiting=len(waiting_folders(training.folder.parent)),
        **{name: answer[name] for name in ("dropped", "by_recency", "order", "no_order")},
    )


def resume(tables: Tables, *, spool: str, mlflow: MlflowSettings) -> list[TrainingAnswer]:
    """Deliver the trainings in the spool, oldest first, so that the newest becomes the candidate.

    Unless a later one was delivered meanwhile. Raises InputError if nothing waits, and as `deliver`.
    """
    trainings = waiting(Path(spool))
    if not trainings:
        raise InputError(f"no training waits in {spool}; run `cachecast train --as-of …`")
    return [deliver(tables, training, mlflow, is_new=False) for training in trainings]


def _write(tables: Tables, training: Training, reports: list[ModelReport]) -> None:
    """Replace the rows of this training in the tables of metrics."""
    answer, until_s = training.answer, int(training.answer["until_s"])
    key = MomentKey.at(until_s, training.region)
    written: dict[Table, list[dict[str, object]]] = {
        MODEL_METRICS: [dataclasses.asdict(report) for report in reports],
        RELIABILITY: answer["reliability"],
        MODEL_SLICES: answer["slices"],
        MODEL_HOLDINGS: answer["holdings"],
    }
    for table, rows in written.items():
        tables.replace_rows(table, rows, key)
