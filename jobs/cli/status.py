"""The commands that look: `status` and `caches`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from features.times import parse_as_of, parse_day
from jobs.cli import console
from jobs.cli.options import Conf, Json, TablesRoot
from jobs.settings.tree import Settings

if TYPE_CHECKING:
    from jobs.operate.status import Status


def status(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Show caches, fill, pins, the last plans and pushes, the model and alarms; exit code 1 on an alarm."""
    from jobs.operate import prometheus as job_figures
    from jobs.operate import status as job

    settings = Settings.load(conf, tables=tables)
    told = job.run(settings, now_s=int(time.time()))
    if settings.metrics.folder:
        job_figures.leave(Path(settings.metrics.folder), "state", job.samples(told))
    if as_json:
        console.show(told, as_json=True)
    else:
        _show(told)
    if told.alarms:
        raise typer.Exit(1)


def _show(told: Status) -> None:
    model = f"{told.champion} (decided {told.decided_at})" if told.champion else "none, caches run plain LRU"
    console.out.print(f"[bold]{escape(told.region)}[/bold] at {told.at}", highlight=False)
    console.out.print(f"champion: {escape(model)}", highlight=False)
    scored = f"{console.count(told.predictions)} at {told.predictions_at} by {told.scored_by}"
    console.out.print(escape(f"predictions: {scored if told.predictions_at else 'none'}"), highlight=False)
    if told.caches:
        console.show(told.caches, as_json=False)
    if told.alarms:
        console.show(told.alarms, as_json=False, title="Alarms (docs/troubleshoot.md has each)")
    else:
        console.out.print("no alarm")


def caches(
    pushed_at: Annotated[
        str | None, typer.Option(help="only caches to which a plan of this moment was pushed")
    ] = None,
    unjudged: Annotated[
        str | None,
        typer.Option(help="only caches to which plans of this UTC day were pushed, without a verdict on it"),
    ] = None,
    with_rse: Annotated[bool, typer.Option("--with-rse", help="only caches with an RSE in Rucio")] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """List the configured caches, as Airflow's tasks are mapped over them."""
    from jobs.operate.caches import Wanted, listed

    wanted = Wanted(
        pushed_at_s=None if pushed_at is None else parse_as_of(pushed_at),
        unjudged_s=None if unjudged is None else parse_day(unjudged),
        with_rse=with_rse,
    )
    console.show(listed(Settings.load(conf, tables=tables), wanted), as_json=as_json)
