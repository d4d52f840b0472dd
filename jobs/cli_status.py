"""The commands that look: `status` and `caches`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from features.times import parse_as_of
from jobs import console
from jobs.options import Conf, Json, TablesRoot
from jobs.settings import Settings

if TYPE_CHECKING:
    from jobs.status import Status


def status(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Show caches, fill, pins, the last plans and pushes, the model and alarms; exit code 1 on an alarm."""
    from jobs import job_figures
    from jobs import status as job

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
        console.show(told.alarms, as_json=False, title="Alarms (docs/status.md has each)")
    else:
        console.out.print("no alarm")


def caches(
    pushed_at: Annotated[
        str | None, typer.Option(help="only caches to which a plan of this moment was pushed")
    ] = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """List the configured caches, as Airflow's tasks are mapped over them."""
    from jobs.caches import listed

    pushed_at_s = None if pushed_at is None else parse_as_of(pushed_at)
    console.show(listed(Settings.load(conf, tables=tables), pushed_at_s=pushed_at_s), as_json=as_json)
