"""The steps around models, as settings configure them: what commands, DAGs and the demo run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from features.errors import InputError
from features.times import DAY_S
from features.units import duration_label
from jobs.cli.console import Advance
from jobs.settings.tree import Settings
from jobs.steps import Written, on_grid, written
from jobs.store.tables import Tables

if TYPE_CHECKING:
    from jobs.evaluate.evaluate import EvaluationAnswer
    from jobs.evaluate.promote import Promotion
    from jobs.train.deliver import TrainingAnswer


@dataclasses.dataclass(frozen=True)
class Predicted(Written):
    """The predictions table after the step; `alarms`: what an operator should look at."""

    model_version: str
    alarms: tuple[str, ...]


def train(
    settings: Settings, *, until_s: int, search_s: float = 0, sample_share: float = 1.0, on_progress: Advance
) -> TrainingAnswer:
    """Label what has matured by `until_s`, train, and record the comparison.

    `sample_share`: below 1 from the samples that `steps.features` took, whatever their share.
    """
    from jobs.spark.session import spark_session
    from jobs.train.features import run_labels
    from jobs.train.training import run

    tables = Tables(settings.tables.root)
    spec = dataclasses.replace(settings.features.spec, sample_share=sample_share)
    on_progress(0, len(spec.horizons_s), "labels")
    run_labels(
        spark_session(settings.spark),
        tables,
        spec=spec,
        until_s=until_s,
        demand_sources=settings.sources.demand,
        kept_at=settings.features.kept_at,
    )
    return run(
        tables,
        spec=spec,
        region=settings.region.name,
        training=settings.training,
        mlflow=settings.mlflow,
        until_s=until_s,
        search_s=search_s,
        on_progress=on_progress,
    )


def resume(settings: Settings) -> list[TrainingAnswer]:
    """Bring trainings into MLflow that it was not there for."""
    from jobs.train.deliver import resume as run

    return run(Tables(settings.tables.root), spool=settings.training.spool, mlflow=settings.mlflow)


def predict(settings: Settings, *, as_ofs: Sequence[int], alias: str | None = None) -> Predicted:
    """Score the candidates at `as_ofs`; `alias`: by the models there, instead of those that serve."""
    from jobs.spark.session import spark_session
    from jobs.train.predict import run

    spec = settings.features.spec
    on_grid(as_ofs, spec.cycle_s)
    chosen = settings.mlflow if alias is None else settings.mlflow.model_copy(update={"serve": (alias,)})
    answer = run(
        spark_session(settings.spark),
        Tables(settings.tables.root),
        spec=spec,
        region=settings.region.name,
        as_ofs=as_ofs,
        mlflow=chosen,
        max_age_s=settings.training.max_age,
    )
    done = written(answer.snapshot, as_ofs)
    return Predicted(**dataclasses.asdict(done), model_version=answer.model_version, alarms=answer.alarms)


def evaluate(
    settings: Settings,
    *,
    accesses: Path | None,
    from_s: int,
    to_s: int | None,
    cycle_s: int | None,
    fractions: Sequence[float],
    on_progress: Advance,
) -> EvaluationAnswer:
    """Walk through past accesses and replay the service against its rivals; see `jobs.evaluate.evaluate`."""
    from jobs.evaluate.evaluate import Asked, run
    from jobs.spark.session import spark_session

    grid_s = settings.features.cycle
    if cycle_s is not None and grid_s % cycle_s and (cycle_s % grid_s or DAY_S % cycle_s):
        raise InputError(
            f"a cycle of {duration_label(cycle_s)} does not fit the grid of {duration_label(grid_s)} "
            "([features] cycle): choose a part of it, or a multiple that divides a day"
        )
    asked = Asked(accesses, from_s, to_s, cycle_s, fractions)
    return run(spark_session(settings.spark), settings, asked, on_progress=on_progress)


def promote(settings: Settings) -> Promotion:
    """Decide about the region's champion by its newest evaluation."""
    from jobs.evaluate.promote import run

    return run(
        Tables(settings.tables.root),
        region=settings.region.name,
        mlflow=settings.mlflow,
        max_age_s=settings.training.max_age,
        now_s=int(time.time()),
        min_days=settings.training.min_test_days,
    )


def rollback(settings: Settings) -> Promotion:
    """Take the region's last promotion back."""
    from jobs.evaluate.promote import rollback as run

    return run(
        Tables(settings.tables.root),
        region=settings.region.name,
        mlflow=settings.mlflow,
        now_s=int(time.time()),
    )


def why(settings: Settings) -> Promotion:
    """The newest decision about the region's champion."""
    from jobs.evaluate.promote import why as run

    return run(Tables(settings.tables.root), region=settings.region.name)
