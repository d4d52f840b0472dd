"""Deliver a training from the spool to MLflow and the tables of metrics, at its end or by `--resume`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from features.common.errors import InputError, ServiceError
from features.results import MODEL_HOLDINGS, MODEL_METRICS, MODEL_SLICES, RELIABILITY
from features.schema import Table
from jobs.settings.tree import MlflowSettings
from jobs.store.keys import MomentKey
from jobs.store.tables import Tables
from jobs.store.trainings import keep_training
from models.serving.mlflow_session import patiently
from models.serving.spool import Training, waiting
from models.serving.upload import upload
from models.training.recording import ModelReport


@dataclasses.dataclass(frozen=True)
class TrainingAnswer:
    """The result of a training. `version`: the region's new candidate in MLflow, like `cachecast-emea/3`.

    `dropped`: horizons without a model, and why; `by_recency`: horizons that recency serves, and why;
    `order`: of eviction, in words, None without one; `no_order`: the reason, if there is none.
    """

    version: str
    dropped: dict[str, str]
    by_recency: dict[str, str]
    order: str | None
    no_order: str | None
    models: list[ModelReport]


def deliver(tables: Tables, training: Training, mlflow: MlflowSettings) -> TrainingAnswer:
    """Upload `training`, write its metrics and its digest into the tables, and delete it from the spool.

    Raises ServiceError if MLflow stays unavailable for `patience` seconds: the metrics are then in the tables
    without run ids, and the training stays in the spool.
    """
    answer = training.answer
    reports = [ModelReport(**row) for row in answer["models"]]
    try:
        done = patiently(
            lambda: upload(
                training, uri=mlflow.uri, artifacts=mlflow.artifacts, experiment=mlflow.experiment
            ),
            patience_s=mlflow.patience,
        )
    except ServiceError as error:
        _write(tables, training, reports)
        raise ServiceError(
            f"{error}; the training is complete and kept in {training.folder}: when MLflow is available, run "
            "`cachecast train --resume`"
        ) from error
    reports_with_runs = [
        dataclasses.replace(report, run_id=run_id)
        for report, run_id in zip(reports, done.run_ids, strict=True)
    ]
    _write(tables, training, reports_with_runs)
    keep_training(
        tables,
        region=training.region,
        until_s=int(answer["until_s"]),
        version=done.version,
        digest=done.digest,
    )
    training.remove()
    kept = {name: answer[name] for name in ("dropped", "by_recency", "order", "no_order")}
    return TrainingAnswer(version=done.version, models=reports_with_runs, **kept)


def resume(tables: Tables, *, spool: str, mlflow: MlflowSettings) -> list[TrainingAnswer]:
    """Deliver the trainings in the spool, oldest first, so that the newest becomes the candidate.

    Raises InputError if nothing waits, and as `deliver`.
    """
    trainings = waiting(Path(spool))
    if not trainings:
        raise InputError(f"no training waits in {spool}; run `cachecast train --as-of …`")
    return [deliver(tables, training, mlflow) for training in trainings]


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
