"""The commands around models: `train`, `predict` and `promote`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from features.errors import InputError
from features.times import parse_as_of
from jobs.cli import console, options
from jobs.cli.parsing import moments
from jobs.settings.tree import Settings


def train(
    as_of: Annotated[
        str | None, typer.Option(help="moment of the training, as 2026-03-01; nothing later is used")
    ] = None,
    search_minutes: Annotated[
        float, typer.Option(min=0, help="time to search LightGBM's settings in; 0: as they are")
    ] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="bring trainings into MLflow that it was not there for")
    ] = False,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Train models for every horizon on what was known at a moment, and record the comparison in MLflow."""
    from jobs import model_steps

    settings = Settings.load(conf, tables=tables)
    if resume == (as_of is not None):
        raise InputError("give either --as-of or --resume")
    if as_of is None:
        answers = model_steps.resume(settings)
    else:
        with console.progress("training", quiet=as_json) as advance:
            answers = [
                model_steps.train(
                    settings, until_s=parse_as_of(as_of), search_s=60 * search_minutes, on_progress=advance
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
            columns=console.MODEL_COLUMNS,
        )
        for within, reason in answer.dropped.items():
            console.warn(f"no model within {within}: {reason}")


def predict(
    as_of: Annotated[str | None, typer.Option(help="one moment, as 2026-03-01T04:00:00Z")] = None,
    day: Annotated[str | None, typer.Option(help="UTC day, as 2026-03-01")] = None,
    alias: Annotated[
        str | None, typer.Option(help="score by the models there, instead of those that [mlflow] serve names")
    ] = None,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Score the candidates at one moment, or at every cycle of a day, with the region's champion."""
    from jobs import model_steps

    settings = Settings.load(conf, tables=tables)
    with console.progress("predictions", quiet=as_json):
        answer = model_steps.predict(
            settings, as_ofs=moments(as_of, day, settings.features.cycle), alias=alias
        )
    console.show(answer, as_json=as_json)
    for alarm in answer.alarms:
        console.warn(alarm)


def promote(
    why: Annotated[bool, typer.Option("--why", help="show the last decision, and decide nothing")] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="make the champion before the present one champion again")
    ] = False,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Make the newest evaluated model the champion if its plans beat every rival in replay; else refuse."""
    from jobs import model_steps

    if why and rollback:
        raise InputError("give either --why or --rollback")
    step = model_steps.why if why else model_steps.rollback if rollback else model_steps.promote
    answer = step(Settings.load(conf, tables=tables))
    if as_json:
        console.show(answer, as_json=True)
        return
    champion = answer.champion or "none, caches run plain LRU"
    console.out.print(
        escape(f"{answer.action} {answer.model_version} at {answer.decided_at}; champion: {champion}")
    )
    for reason in answer.reasons:
        console.out.print(escape(f"  {reason}"))
    if answer.comparisons:
        console.show(answer.comparisons, as_json=False, title="Daily WAN saved, with its 95 % bounds")
