"""Deliver a training to MLflow and the tables of metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pandas as pd

from features.common.errors import ServiceError
from features.common.times import as_of_label, day_label
from features.common.units import duration_label
from features.results import MODEL_HOLDINGS, MODEL_METRICS, MODEL_SLICES, RELIABILITY
from features.schema import Table
from jobs.ground.settings.tree import MlflowSettings, TrainingSettings
from jobs.ground.store.keys import MomentKey
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row
from jobs.loop.trainings import keep_training, registry
from models.serving.bundle import Bundle, OrderModel
from models.serving.card import EXAMPLE_ROWS, Card
from models.serving.mlflow_session import patiently
from models.serving.runs import Run, TableRead, code_version
from models.serving.spool import Training, texts, upload
from models.serving.versions import CANDIDATE
from models.training.recording import ModelReport, headline
from models.training.training import Effort, Trained


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
    consequence = f"the trained models are kept in {training.folder}; when MLflow is available, train again"
    try:
        version, reports = _deliver(tables, training, trained, mlflow)
    except ServiceError as error:
        raise ServiceError(f"{error}; {consequence}") from error
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


@dataclasses.dataclass(frozen=True)
class Data:
    """What was learned from. `example`: the first rows; `demand`: as `[sources] demand`."""

    n_rows: int
    n_moments: int
    first_day: str
    last_day: str
    tables: tuple[TableRead, TableRead]
    demand: Mapping[str, str]
    example: pd.DataFrame

    @staticmethod
    def of(rows: pd.DataFrame, *, features: str, labels: str, demand: Mapping[str, str]) -> Data:
        """The data of `rows`; `features`, `labels`: commits of these tables."""
        tables = (TableRead("features", features, len(rows)), TableRead("labels", labels, len(rows)))
        as_of_s = rows["as_of_s"]
        first, last = day_label(int(as_of_s.min())), day_label(int(as_of_s.max()))
        return Data(len(rows), as_of_s.nunique(), first, last, tables, demand, rows.head(EXAMPLE_ROWS))

    @property
    def tags(self) -> dict[str, str]:
        """Commits of the tables, and the code's version."""
        return {f"{table.name}_snapshot": table.commit for table in self.tables} | code_version()

    @property
    def in_words(self) -> str:
        """Rows and days, for example `900 rows at 12 decision times, 2026-03-01 to 2026-03-12`."""
        days = f"{self.first_day} to {self.last_day}"
        return f"{self.n_rows} rows at {self.n_moments} decision times, {days}"

    @property
    def demand_in_words(self) -> str:
        """The sources whose reads count as demand, for example `cache1: xcache_gstream`."""
        return ", ".join(f"{where}: {source}" for where, source in self.demand.items()) or "all"


def described(
    trained: Trained, bundle: Bundle, data: Data, *, training: TrainingSettings, effort: Effort
) -> Run:
    """The training's own run: what people compare trainings by. Those of its models are nested in it."""
    settings = {name: getattr(training, name) for name in ("max_rows", "every", "span")}
    params = {
        "region": bundle.region,
        "until": as_of_label(bundle.until_s),
        "learner": ", ".join(dict.fromkeys(one.learner for one in bundle.models)),
        "horizons": ", ".join(one.within for one in bundle.models),
        "cycle": duration_label(bundle.spec.cycle_s),
        "history": duration_label(bundle.spec.history_s),
        "candidates": duration_label(bundle.spec.candidate_s),
        "every": duration_label(settings["every"]),
        "span": duration_label(settings["span"]),
        "demand": data.demand_in_words,
        "n_rows": data.n_rows,
        "n_moments": data.n_moments,
        "first_day": data.first_day,
        "last_day": data.last_day,
        "max_rows": settings["max_rows"],
        **dataclasses.asdict(effort),
        "search_s": f"{effort.search_s:g}",
        "learners": ", ".join(effort.learners),
        **code_version(),
    }
    return Run(
        f"{as_of_label(bundle.until_s).removesuffix('T00:00:00Z')} {bundle.region}",
        "training",
        texts(params),
        data.tags
        | {
            "model": ", ".join(f"{one.within} {one.learner}" for one in bundle.models),
            "data": data.in_words,
            "order": order_in_words(bundle.order) or f"none: {bundle.no_order}",
        },
        headline(trained.reports),
        tables=data.tables,
        says="; ".join(
            f"within {one.within}: AUC {_bounded(one, 'auc')}, average precision "
            f"{_bounded(one, 'average_precision')} by {one.model}"
            for one in trained.reports
            if one.serves
        ),
    )


def card(trained: Trained, data: Data) -> Card:
    """The card of the version."""
    figures: Sequence[Mapping[str, object]] = [
        {
            "within": report.within,
            "model": report.model,
            "AUC": _bounded(report, "auc"),
            "average precision": _bounded(report, "average_precision"),
            "calibration error": _bounded(report, "calibration_error"),
            "rows": report.n_rows,
        }
        for report in trained.reports
        if report.serves
    ]
    learned_from = {
        "region": trained.bundle.region,
        "data": data.in_words,
        "demand": data.demand_in_words,
        **{f"commit of the table {report.name}": report.commit for report in data.tables},
        "nothing known from then on was used": as_of_label(trained.bundle.until_s),
        "code": ", ".join(code_version().values()),
    }
    return Card(data.example, figures, learned_from, trained.gains)


def _bounded(report: ModelReport, name: str) -> str | float | None:
    """A figure with its bounds where it has them, for example `0.871 (0.858 to 0.884)`."""
    value: float | None = getattr(report, name)
    low, high = (report.bounds.get(f"{name}_{end}") for end in ("lower", "upper"))
    if value is None or low is None or high is None:
        return value
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def order_in_words(learned: OrderModel | None) -> str | None:
    """The horizons of an order, for example `within 90m, 3h`; None without one."""
    return None if learned is None else f"within {', '.join(map(duration_label, learned.horizons_s))}"
