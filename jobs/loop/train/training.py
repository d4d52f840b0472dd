"""Step `train`: models of every horizon from features and labels, tested on later days, into MLflow."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from features.common.errors import InputError, ModelError, StaleInputError
from features.common.progress import Advance
from features.spec import FeatureSpec
from jobs.ground.settings.tree import LearnerName, MlflowSettings, Settings, TrainingSettings
from jobs.ground.store.tables import Tables
from jobs.loop.train import features, order
from jobs.loop.train.deliver import TrainingAnswer, deliver
from jobs.loop.train.described import Data, card, described
from jobs.loop.train.engines import Engines
from jobs.loop.train.ready import learned_since_s
from jobs.loop.train.samples import training_sample
from models.serving.spool import Spool
from models.training.training import Effort, train

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
    tables = Tables(settings.tables.root)
    spec = dataclasses.replace(settings.features.spec, sample_share=sample_share)
    on_progress(0, len(spec.horizons_s), "labels")
    features.label(
        Engines.of(settings),
        tables,
        spec=spec,
        until_s=until_s,
        demand_sources=settings.sources.demand,
        kept_at=settings.features.kept_at,
    )
    return train_and_record(
        tables,
        spec=spec,
        region=settings.region.name,
        training=settings.training,
        mlflow=settings.mlflow,
        until_s=until_s,
        compare=compare,
        search_s=search_s,
        demand_sources=settings.sources.demand,
        on_progress=on_progress,
    )


def train_and_record(
    tables: Tables,
    *,
    spec: FeatureSpec,
    region: str,
    training: TrainingSettings,
    mlflow: MlflowSettings,
    until_s: int,
    compare: bool = False,
    search_s: float = 0,
    demand_sources: Mapping[str, str] | None = None,
    on_progress: Advance,
) -> TrainingAnswer:
    """Train a model per horizon, measure it on the last `test_share` of the as_ofs, and record all.

    With `[training] order` the region's order of eviction is learned too, from the accesses of the
    `demand_sources` (default: all); if they are too few, the answer has the reason.

    Only labels matured by `until_s` count; with too few of them recency serves the horizon. With `compare`
    every learner of the settings is measured, and for each horizon the LightGBM with the least log loss on
    validation rows serves; else the plain one does. What serves is fitted again on all rows and becomes the
    region's `candidate`. `search_s`: seconds for the search of LightGBM's settings, which competes too.
    Metrics are also written to tables (`train.deliver`). Raises StaleInputError (no features or labels),
    ModelError (no horizon has enough), ServiceError (MLflow is unavailable: the training is kept in the
    spool).
    """
    features_table, labels = tables.snapshot(spec.features_table), tables.snapshot(spec.labels_table)
    on_progress(0, len(spec.horizons_s), "reading")
    rows = training_sample(
        features_table, labels, spec=spec, region=region, max_rows=training.max_rows, until_s=until_s
    )
    effort = Effort(
        test_share=training.test_share,
        learners=training.learners if compare else (LEARNER,),
        trees=training.trees,
        seed=training.seed,
        search_s=search_s,
        search_trials=training.search_trials,
    )
    data = Data.of(rows, features=features_table.id, labels=labels.id, demand=demand_sources or {})
    with _spool(training.spool) as spool:
        trained = train(
            rows,
            spool,
            spec=spec,
            region=region,
            until_s=until_s,
            effort=effort,
            tags=data.tags,
            on_progress=on_progress,
        )
        bundle = dataclasses.replace(trained.bundle, no_order="[training] order is false")
        if training.order:
            try:
                learned = order.learn(
                    tables,
                    since_s=learned_since_s(spec, training, at_s=until_s),
                    until_s=until_s,
                    demand_sources=demand_sources or {},
                    on_progress=on_progress,
                )
                spool.add_order(learned.trees)
                bundle = dataclasses.replace(bundle, order=learned.model, no_order=None)
            except (StaleInputError, InputError) as error:
                bundle = dataclasses.replace(bundle, no_order=str(error))
        done = spool.finish(
            bundle,
            described(trained, bundle, data, training=training, effort=effort),
            card=card(trained, data),
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
