"""The commands around models: `features`, `train` and `predict`."""

from __future__ import annotations

from typing import Annotated

import typer

from features.errors import InputError
from features.times import parse_as_of
from jobs import text
from jobs.cli import console, options
from jobs.cli.options import Conf, Day, Json, OneAsOf, TablesRoot
from jobs.cli.parsing import moments


def features(
    as_of: OneAsOf = None,
    day: Day = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Compute the features of the candidates.

    At one decision time (--as-of), or at every cycle of a day (--day).
    """
    from jobs.train import ready

    settings = options.load(conf, tables=tables)
    as_ofs = moments(as_of, day, settings.features.cycle)
    ready.to_compute(settings, as_ofs=as_ofs)
    from jobs.train import features as job

    with console.progress("features", quiet=as_json):
        answer = job.run(settings, as_ofs=as_ofs)
    console.show(answer, as_json=as_json)


def train(
    as_of: Annotated[
        str | None, typer.Option(help="time of the training, for example 2026-03-01; nothing later is used")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="fit every learner of [training] learners; the best LightGBM serves"),
    ] = False,
    search_minutes: Annotated[
        float,
        typer.Option(min=0, help="with --compare: minutes to search LightGBM's settings in; 0: keep them"),
    ] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="upload trainings that wait because MLflow was unavailable")
    ] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Train a model for every horizon, and record it in MLflow beside scores that are not learned."""
    from jobs.train import ready

    settings = options.load(conf, tables=tables)
    if resume == (as_of is not None):
        raise InputError("give either --as-of or --resume")
    if (compare and resume) or (search_minutes and not compare):
        raise InputError("--search-minutes needs --compare, and --compare needs --as-of")
    if as_of is None:
        from jobs.store.tables import Tables
        from jobs.train import deliver

        answers = deliver.resume(
            Tables(settings.tables.root), spool=settings.training.spool, mlflow=settings.mlflow
        )
    else:
        until_s = parse_as_of(as_of)
        ready.to_train(settings, until_s=until_s)
        from jobs.train import training

        with console.progress("training", quiet=as_json) as advance:
            answers = [
                training.run(
                    settings,
                    until_s=until_s,
                    compare=compare,
                    search_s=60 * search_minutes,
                    on_progress=advance,
                )
            ]
    if as_json:
        console.show(answers if resume else answers[0], as_json=True)
        return
    for answer in answers:
        console.show(
            answer.models,
            as_json=False,
            title=f"{answer.version}, the new candidate: models on days they were not trained on",
            columns=text.MODEL_COLUMNS,
        )
        for within, reason in answer.dropped.items():
            console.warn(f"no model within {within}: {reason}")
        for within, reason in answer.by_recency.items():
            console.warn(f"recency serves within {within}: {reason}")
        if answer.order is not None:
            console.sentence(f"order of eviction: {answer.order}")
        else:
            console.warn(f"no order of eviction: {answer.no_order}")


def predict(
    as_of: OneAsOf = None,
    day: Day = None,
    alias: Annotated[
        str | None, typer.Option(help="score with the models of this alias; defaults to [mlflow] serve")
    ] = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Score the candidates with the models that serve the region.

    At one decision time (--as-of), or at every cycle of a day (--day).
    """
    from jobs.train import ready

    settings = options.load(conf, tables=tables)
    as_ofs = moments(as_of, day, settings.features.cycle)
    ready.to_predict(settings, as_ofs=as_ofs, alias=alias)
    from jobs.train import predict as job

    with console.progress("predictions", quiet=as_json):
        answer = job.run(settings, as_ofs=as_ofs, alias=alias)
    console.show_warning(answer, as_json=as_json)
