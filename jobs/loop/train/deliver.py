"""Deliver a training to MLflow and the tables of metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from features.common.errors import ServiceError
from features.results import MODEL_HOLDINGS, MODEL_METRICS, MODEL_SLICES, RELIABILITY
from features.schema import Table
from jobs.ground.settings.tree import MlflowSettings
from jobs.ground.store.keys import MomentKey
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row
from jobs.loop.train.described import order_in_words
from jobs.loop.train.registry import registry
from jobs.loop.trainings import keep_training
from models.serving.mlflow_session import patiently
from models.serving.spool import Training, upload
from models.serving.versions import CANDIDATE
from models.training.recording import ModelReport
from models.training.training import Trained


@dataclasses.dataclass(frozen=True)
class TrainingAnswer:
    """The result of a training. `version`: in MLflow, like `cachecast-emea/3`, the region's new candidate.

    `dropped`: horizons without a model, and why; `by_recency`: horizons that recency serves, and why;
    `order`: of eviction, in words, None without one; `no_order`: the reason, if there is none.
    """

    version: str
    dropped: dict[str, str]
    by_recency: dict[str, str]
    order: str | None
    no_order: str | None
    models: list[ModelReport]


def deliver(tables: Tables, training: Training, trained: Trained, mlflow: MlflowSettings) -> TrainingAnswer:
    """Upload `training`, make it the region's candidate, write its metrics and digest, delete its folder.

    Raises ServiceError if MLflow stays unavailable for `patience` seconds: the metrics are in the tables
    then, without run ids if it took no run, and the folder stays.
    """
    kept = f"the trained models are kept in {training.folder}; when MLflow is available, train again"
    try:
        version, reports = _deliver(tables, training, trained, mlflow)
    except ServiceError as error:
        raise ServiceError(f"{error}; {kept}") from error
    training.remove()
    bundle = trained.bundle
    return TrainingAnswer(
        version, bundle.dropped, bundle.by_recency, order_in_words(bundle.order), bundle.no_order, reports
    )


def _deliver(
    tables: Tables, training: Training, trained: Trained, mlflow: MlflowSettings
) -> tuple[str, list[ModelReport]]:
    """The new version, and the reports with the ids of their runs."""
    try:
        done = patiently(
            lambda: upload(
                training, uri=mlflow.uri, artifacts=mlflow.artifacts, experiment=mlflow.experiment
            ),
            patience_s=mlflow.patience,
        )
    except ServiceError:
        _write(tables, trained, trained.reports)
        raise
    reports = [
        dataclasses.replace(report, run_id=run_id)
        for report, run_id in zip(trained.reports, done.run_ids, strict=True)
    ]
    _write(tables, trained, reports)
    region, until_s = training.region, trained.bundle.until_s
    keep_training(tables, region=region, until_s=until_s, version=done.version, digest=done.digest)
    # Last, as a version without its row in the table trainings is not read.
    patiently(lambda: registry(mlflow).point(CANDIDATE, done.version, tags={}), patience_s=mlflow.patience)
    return done.version, reports


def _write(tables: Tables, trained: Trained, reports: list[ModelReport]) -> None:
    """Replace the rows of this training in the tables of metrics."""
    written: dict[Table, Sequence[Row]] = {
        MODEL_METRICS: [dataclasses.asdict(report) for report in reports],
        RELIABILITY: trained.rows["reliability"],
        MODEL_SLICES: trained.rows["slices"],
        MODEL_HOLDINGS: trained.rows["holdings"],
    }
    for table, rows in written.items():
        tables.replace_rows(table, rows, MomentKey.at(trained.bundle.until_s, trained.bundle.region))
