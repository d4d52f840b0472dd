"""Step `train`: models of every horizon from features and labels, tested on later days, into MLflow."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from features.accesses import reader_kinds
from features.common.errors import InputError, ModelError, StaleInputError
from features.common.progress import Advance
from features.common.times import DAY_S, as_of_label, day_label, parse_day
from features.common.units import duration_label
from features.schema import ACCESSES
from features.spec import COLUMNS
from jobs.ground.settings.tree import LearnerName, MlflowSettings, Settings, TrainingSettings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import sources
from jobs.loop.traces import from_tables
from jobs.loop.train import features
from jobs.loop.train.deliver import Data, TrainingAnswer, card, deliver, described
from jobs.loop.train.engines import RegionData
from jobs.loop.train.ready import learned_since_s
from models.learning.order import CAPACITY_FRACTIONS, HorizonTrees, Learning
from models.serving.bundle import OrderModel
from models.serving.spool import Spool
from models.training.training import Effort, train
from replay.access_context import CONTEXT, context_of, file_kinds

LEARNER: LearnerName = "lightgbm"
"""The learner of a training that compares none."""


def run(
    settings: Settings,
    *,
    until_s: int,
    compare: bool = False,
    search_s: float = 0,
    sample_share: float = 1.0,
    on_progress: Advance,
) -> TrainingAnswer:
    """Compute the labels matured by `until_s`, train and record the models; raises as `train_and_record`.

    `sample_share`: if below 1, train on the samples that `features.run` took, of any share.
    """
    data = RegionData.of(settings, sample_share=sample_share)
    on_progress(0, len(data.spec.horizons_s), "labels")
    features.label(data, until_s=until_s, kept_at=settings.features.kept_at)
    return train_and_record(
        data,
        settings.training,
        settings.mlflow,
        until_s=until_s,
        compare=compare,
        search_s=search_s,
        on_progress=on_progress,
    )


def train_and_record(
    data: RegionData,
    training: TrainingSettings,
    mlflow: MlflowSettings,
    *,
    until_s: int,
    compare: bool = False,
    search_s: float = 0,
    on_progress: Advance,
) -> TrainingAnswer:
    """Train a model per horizon, measure it on the last `test_share` of the as_ofs, and record all.

    With `[training] order` the region's order of eviction is learned too; if there are too few accesses, the
    answer has the reason.

    Only labels matured by `until_s` count; with too few of them recency serves the horizon. With `compare`
    every learner of the settings is measured, and for each horizon the LightGBM with the least log loss on
    validation rows serves; else the plain one does. What serves is fitted again on all rows and becomes the
    region's `candidate`. `search_s`: seconds for the search of LightGBM's settings, which competes too.
    Raises StaleInputError (no features or labels), ModelError (no horizon has enough), ServiceError (MLflow
    is unavailable: the training is kept in the spool).
    """
    tables, spec = data.tables, data.spec
    features_table, labels = tables.snapshot(spec.features_table), tables.snapshot(spec.labels_table)
    on_progress(0, len(spec.horizons_s), "reading")
    rows = features.training_sample(data, features_table, labels, max_rows=training.max_rows, until_s=until_s)
    effort = Effort(
        test_share=training.test_share,
        learners=training.learners if compare else (LEARNER,),
        trees=training.trees,
        seed=training.seed,
        search_s=search_s,
        search_trials=training.search_trials,
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
                learned = learn(data, since_s=since_s, until_s=until_s, on_progress=on_progress)
                spool.add_order(learned.trees)
                bundle = dataclasses.replace(bundle, order=learned.model, no_order=None)
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
    except OSError as error:
        spool.discard()
        raise ModelError(
            f"[training] spool: {root} cannot be written ({error.strerror}); make room"
        ) from None
    except BaseException:
        spool.discard()
        raise


MOST_ACCESSES = 4_000_000
"""Accesses learned from, in memory with their names: of as many days as have no more, at least of one."""


class RegionOrder(NamedTuple):
    """An order of eviction: its description in a bundle, and its models."""

    model: OrderModel
    trees: HorizonTrees


def learn(data: RegionData, *, since_s: int, until_s: int, on_progress: Advance) -> RegionOrder:
    """The order that could be learned at `until_s` from the accesses since the day of `since_s`.

    Raises StaleInputError or InputError if they are too few.
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
    return RegionOrder(model, trees)


def _affordable_since_s(tables: Tables, until_s: int) -> int:
    """The first of the days that are learned from; see `MOST_ACCESSES`."""
    days = tables.snapshot(ACCESSES).select(until=day_label(until_s))
    n_accesses, since_s = 0, until_s
    for key, part in sorted(days.items(), reverse=True):
        n_accesses += part.n_rows
        if n_accesses > MOST_ACCESSES and since_s < until_s:
            break
        since_s = parse_day(key[0])
    return since_s
