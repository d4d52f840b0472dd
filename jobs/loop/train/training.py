"""Step `train`: models of every horizon from features and labels, tested on later days, into MLflow."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from features.accesses import reader_kinds
from features.common.errors import InputError, ModelError, ServiceError, StaleInputError
from features.common.progress import Advance
from features.common.times import DAY_S, as_of_label, day_label, parse_day
from features.common.units import duration_label
from features.results import MODEL_METRICS, RELIABILITY
from features.schema import ACCESSES
from features.spec import COLUMNS
from jobs.ground.settings.tree import MlflowSettings, Settings, TrainingSettings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import sources
from jobs.loop.traces import from_tables
from jobs.loop.train import features
from jobs.loop.train.engines import RegionData
from jobs.loop.train.ready import learned_since_s
from jobs.loop.trainings import keep_training, registry
from models.learning.order import CAPACITY_FRACTIONS, HorizonTrees, Learning
from models.serving.bundle import Bundle, OrderModel
from models.serving.mlflow_session import patiently
from models.serving.runs import Run, TableRead, code_version
from models.serving.spool import EXAMPLE_ROWS, Card, Spool, Training, texts, upload
from models.serving.versions import CANDIDATE
from models.training.recording import ModelReport, headline
from models.training.training import Effort, Trained, train
from replay.access_context import CONTEXT, context_of, file_kinds


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
    where = f"the trained models are kept in {training.folder} for a week"
    try:
        version, reports = _deliver(tables, training, trained, mlflow)
    except ServiceError as error:
        raise ServiceError(f"{error}; {where}; when MLflow is available, train again") from error
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
    patiently(lambda: registry(mlflow).point(CANDIDATE, done.version), patience_s=mlflow.patience)
    return done.version, reports


def _write(tables: Tables, trained: Trained, reports: list[ModelReport]) -> None:
    key = MomentKey.at(trained.bundle.until_s, trained.bundle.region)
    tables.replace_rows(MODEL_METRICS, [dataclasses.asdict(report) for report in reports], key)
    tables.replace_rows(RELIABILITY, trained.reliability, key)


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
    params = {
        "region": bundle.region,
        "until": as_of_label(bundle.until_s),
        "learner": ", ".join(dict.fromkeys(model.learner for model in bundle.models)),
        "horizons": ", ".join(model.within for model in bundle.models),
        "cycle": duration_label(bundle.spec.cycle_s),
        "history": duration_label(bundle.spec.history_s),
        "candidates": duration_label(bundle.spec.candidate_s),
        "every": duration_label(training.every),
        "span": duration_label(training.span),
        "demand": data.demand_in_words,
        "n_rows": data.n_rows,
        "n_moments": data.n_moments,
        "first_day": data.first_day,
        "last_day": data.last_day,
        "max_rows": training.max_rows,
        **dataclasses.asdict(effort),
        "learners": ", ".join(effort.learners),
        **code_version(),
    }
    return Run(
        f"{as_of_label(bundle.until_s).removesuffix('T00:00:00Z')} {bundle.region}",
        "training",
        texts(params),
        data.tags
        | {
            "model": ", ".join(f"{model.within} {model.learner}" for model in bundle.models),
            "data": data.in_words,
            "order": order_in_words(bundle.order) or f"none: {bundle.no_order}",
        },
        headline(trained.reports),
        tables=data.tables,
        says="; ".join(
            f"within {report.within}: AUC {_bounded(report, 'auc')}, average precision "
            f"{_bounded(report, 'average_precision')} by {report.model}"
            for report in trained.reports
            if report.serves
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


def run(
    settings: Settings,
    *,
    until_s: int,
    compare: bool = False,
    sample_share: float = 1.0,
    on_progress: Advance,
) -> TrainingAnswer:
    """Compute the labels matured by `until_s`, train and record the models; raises as `train_and_record`.

    `sample_share`: if below 1, train on the samples that `features.run` took, of any share.
    """
    data = RegionData.of(settings, sample_share=sample_share)
    on_progress(0, len(data.spec.horizons_s), "labels")
    features.label(data, until_s=until_s)
    return train_and_record(
        data, settings.training, settings.mlflow, until_s=until_s, compare=compare, on_progress=on_progress
    )


def train_and_record(
    data: RegionData,
    training: TrainingSettings,
    mlflow: MlflowSettings,
    *,
    until_s: int,
    compare: bool = False,
    on_progress: Advance,
) -> TrainingAnswer:
    """Train a model per horizon, measure it on the last `test_share` of the as_ofs, and record all.

    With `[training] order` the region's order of eviction is learned too; if there are too few accesses, the
    answer has the reason.

    Only labels matured by `until_s` count; with too few of them recency serves the horizon. With `compare`
    every learner of the settings is measured, and for each horizon the LightGBM with the least log loss on
    validation rows serves; else the plain one does. What serves is fitted again on all rows and becomes the
    region's `candidate`.
    Raises StaleInputError (no features or labels), ModelError (no horizon has enough), ServiceError (MLflow
    is unavailable: the training is kept in the spool).
    """
    tables, spec = data.tables, data.spec
    features_table, labels = tables.snapshot(spec.features_table), tables.snapshot(spec.labels_table)
    on_progress(0, len(spec.horizons_s), "reading")
    rows = features.training_sample(data, features_table, labels, max_rows=training.max_rows, until_s=until_s)
    effort = Effort(
        test_share=training.test_share,
        learners=training.learners if compare else ("lightgbm",),
        trees=training.trees,
        seed=training.seed,
    )
    source = Data.of(rows, features=features_table.id, labels=labels.id, demand=data.demand_sources)
    with _spool(training.spool) as spool:
        trained = train(
            rows,
            spool,
            spec=spec,
            region=data.region,
            until_s=until_s,
            effort=effort,
            tags=source.tags,
            on_progress=on_progress,
        )
        bundle = dataclasses.replace(trained.bundle, no_order="[training] order is false")
        if training.order:
            try:
                since_s = learned_since_s(spec, training, at_s=until_s)
                order, trees = learn(data, since_s=since_s, until_s=until_s, on_progress=on_progress)
                spool.add_order(trees)
                bundle = dataclasses.replace(bundle, order=order, no_order=None)
            except (StaleInputError, InputError) as error:
                bundle = dataclasses.replace(bundle, no_order=str(error))
        done = spool.finish(
            bundle,
            described(trained, bundle, source, training=training, effort=effort),
            card=card(trained, source),
        )
    on_progress(len(spec.horizons_s), len(spec.horizons_s), "recording in MLflow")
    return deliver(tables, done, dataclasses.replace(trained, bundle=bundle), mlflow)


@contextlib.contextmanager
def _spool(root: str) -> Iterator[Spool]:
    """A spooled training that is discarded if the block fails. Raises ModelError if the disk is full."""
    spool = Spool(Path(root))
    try:
        yield spool
    except BaseException as error:
        spool.discard()
        if isinstance(error, OSError):
            what = f"{root} cannot be written ({error.strerror})"
            raise ModelError(f"[training] spool: {what}; make room") from None
        raise


MOST_ACCESSES = 4_000_000
"""An order is learned from the latest days with no more accesses, at least one day: all are in memory."""


def learn(
    data: RegionData, *, since_s: int, until_s: int, on_progress: Advance
) -> tuple[OrderModel, HorizonTrees]:
    """The order that could be learned at `until_s` from the accesses since the day of `since_s`.

    Its description in a bundle, and its models. Raises StaleInputError or InputError if they are too few.
    """
    loaded = from_tables(
        data.tables,
        since_s=max(since_s, _affordable_since_s(data.tables, until_s)),
        until_s=until_s,
        demand_sources=data.demand_sources,
        known_before_s=until_s,
        keep=(*CONTEXT, "source"),
    )
    trace = loaded.trace
    capacities = [max(1, int(fraction * trace.footprint_bytes)) for fraction in CAPACITY_FRACTIONS]
    learning = Learning(trace, context_of(loaded), capacities)
    trees = learning.learn(until_s, on_progress)
    if trees is None:
        past = duration_label((until_s - int(trace.time_s[0])) // DAY_S * DAY_S)
        raise StaleInputError(
            f"{trace.n_accesses} accesses in the {past} before {as_of_label(until_s)} are too few to learn "
            "from; pull more days"
        )
    source_names = loaded.details["source"].unique().to_pylist()
    model = OrderModel(
        horizons_s=trees.horizons_s,
        columns=COLUMNS,
        kinds=file_kinds(trace),
        until_s=until_s,
        readers=reader_kinds(
            loaded.details, sources.select_sources(source_names, lambda source: source.of_sessions)
        ),
    )
    return model, trees


def _affordable_since_s(tables: Tables, until_s: int) -> int:
    """The start of the first day to learn from, so that memory suffices; see `MOST_ACCESSES`."""
    days = tables.snapshot(ACCESSES).select(until=day_label(until_s))
    n_accesses, since_s = 0, until_s
    for key, part in sorted(days.items(), reverse=True):
        n_accesses += part.n_rows
        if n_accesses > MOST_ACCESSES and since_s < until_s:
            break
        since_s = parse_day(key[0])
    return since_s
