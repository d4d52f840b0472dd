"""The operator's commands: `status`, `caches`, `doctor`, `unlock` and `rooms`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from features.times import parse_as_of, parse_day
from jobs import text
from jobs.cli import console, options
from jobs.cli.lazy import lazily
from jobs.cli.options import Conf, Json, TablesRoot

with lazily():
    from jobs.operate import caches as cache_list
    from jobs.operate import doctor as checks
    from jobs.operate import prometheus, unlocking
    from jobs.operate import status as state
    from jobs.spark import code_zip


def status(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Show caches, plans, pushes, the model and alarms.

    Exit code 1 if there is an alarm.
    """
    settings = options.load(conf, tables=tables)
    found = state.run(settings, now_s=int(time.time()))
    if settings.metrics.folder:
        prometheus.leave(Path(settings.metrics.folder), "state", state.samples(found))
    if as_json:
        console.show(found, as_json=True)
    else:
        _show(found)
    if found.alarms:
        raise typer.Exit(1)


def _show(found: state.Status) -> None:
    champion = f"{found.champion} (decided {found.decided_at})" if found.champion else None
    console.out.print(f"[bold]{escape(found.region)}[/bold] at {found.at}", highlight=False)
    console.line(f"champion: {champion or 'none, caches run plain LRU'}")
    scored = f"{text.count(found.predictions)} at {found.predictions_at} by {found.scored_by}"
    console.line(f"predictions: {scored if found.predictions_at else 'none'}")
    if found.caches:
        console.show(found.caches, as_json=False)
    if found.alarms:
        console.show(found.alarms, as_json=False, title="Alarms (docs/troubleshoot.md has each)")
    else:
        console.line("no alarm")


def caches(
    pushed_at: Annotated[
        str | None, typer.Option(help="only caches to which the plan of this decision time was pushed")
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
    """List the configured caches.

    Airflow maps its tasks over them.
    """
    wanted = cache_list.Wanted(
        pushed_at_s=None if pushed_at is None else parse_as_of(pushed_at),
        unjudged_s=None if unjudged is None else parse_day(unjudged),
        with_rse=with_rse,
    )
    console.show(cache_list.listed(options.load(conf, tables=tables), wanted), as_json=as_json)


def doctor(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Show what is configured, and whether it answers.

    Exit code 1 if something does not.
    """
    found = checks.run(options.load(conf, tables=tables))
    console.show(found, as_json=as_json)
    if any(check.state == "bad" for check in found):
        raise typer.Exit(1)


def unlock(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Break the lock that a dead pull left on HDFS or S3.

    Shows who held it. A local folder needs no unlocking.
    """
    console.show(unlocking.run(options.load(conf, tables=tables)), as_json=as_json)


def rooms(out: Annotated[Path, typer.Option(help="zip file to write")], as_json: Json = False) -> None:
    """Write the program as a zip for spark-submit --py-files.

    See docs/cluster.md.
    """
    path = code_zip.write(out)
    console.show({"rooms": str(path), "size_bytes": path.stat().st_size}, as_json=as_json)
