"""The operator's commands: `status`, `caches`, `doctor`, `unlock` and `rooms`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from features.times import as_of_label, parse_as_of, parse_day
from jobs import text
from jobs.cli import console, options
from jobs.cli.options import Conf, Json, TablesRoot

if TYPE_CHECKING:
    from jobs.operate.probes import Check
    from jobs.operate.status import CacheStatus, Status
    from jobs.operate.stewards import Figures


def status(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Show caches, plans, pushes, the model and alarms.

    Exit code 1 if there is an alarm.
    """
    from jobs.operate import prometheus
    from jobs.operate import status as job

    settings = options.load(conf, tables=tables)
    found = job.run(settings, now_s=int(time.time()))
    if settings.metrics.folder:
        prometheus.leave(Path(settings.metrics.folder), "state", job.samples(found))
    if as_json:
        console.show(found, as_json=True)
    else:
        _show(found)
    if found.alarms:
        raise typer.Exit(1)


def _show(found: Status) -> None:
    from jobs.operate.status import champion_line

    console.out.print(f"[bold]{escape(found.region)}[/bold] at {found.at}", highlight=False)
    console.sentence(f"champion: {champion_line(found)}")
    scored = f"{text.count(found.predictions)} at {found.predictions_at} by {found.scored_by}"
    console.sentence(f"predictions: {scored if found.predictions_at else 'none'}")
    if found.caches:
        console.show([_cache(one) for one in found.caches], as_json=False)
    if found.alarms:
        console.show(found.alarms, as_json=False, title="Alarms (docs/troubleshoot.md has each)")
    else:
        console.line("no alarm")


def _cache(one: CacheStatus) -> dict[str, object]:
    """A cache in few columns, each with the time of what it says."""
    held = f"{text.text('held_bytes', one.held_bytes)} of {text.text('bytes', one.capacity_bytes)}"
    fill = "" if one.fill_share is None else f" ({text.percent(one.fill_share)})"
    return {
        "cache": one.cache,
        "held": f"{held}{fill}, {text.text('files', one.held_files)} files",
        "inventory": one.inventory_at,
        "pins": f"{text.count(one.pins)}, {text.text('bytes', one.pinned_bytes)}",
        "plan": _items(one.plan_at, one.plan),
        "push": _items(one.push_at, one.push),
        "steward": "none" if one.steward is None else _steward(one.steward),
    }


def _steward(found: Figures) -> str:
    """The order followed, how full the cache is, and what that has earned."""
    used, most, evicted, saved = (
        text.text("bytes", n_bytes)
        for n_bytes in (found.used_bytes, found.target_bytes, found.evicted_bytes_hour, found.saved_bytes)
    )
    why = "; ".join(f"{text.count(one.files)} files: {reason}" for reason, one in found.last_hour.items())
    hour = f"{evicted} evicted in the last hour" + (f" ({why})" if why else "")
    return f"{_order(found)}: {used} of {most}, {hour}, {saved} saved against LRU"


def _order(found: Figures) -> str:
    """The order followed, and the version of the learned one that may be."""
    if found.version is None or found.version_since_s is None:
        return found.following
    return f"{found.following} ({found.version} serves since {as_of_label(int(found.version_since_s))})"


def _items(at: str | None, counts: dict[str, int]) -> str:
    return "none" if at is None else f"{at}: {text.text('items', counts)}"


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
    from jobs.operate import caches as job

    wanted = job.Wanted(
        pushed_at_s=None if pushed_at is None else parse_as_of(pushed_at),
        unjudged_s=None if unjudged is None else parse_day(unjudged),
        with_rse=with_rse,
    )
    console.show(job.listed(options.load(conf, tables=tables), wanted), as_json=as_json)


def doctor(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Show what is configured, and whether it answers.

    Exit code 1 if something does not.
    """
    from jobs.operate import doctor as job

    found = job.run(options.load(conf, tables=tables))
    console.show(found if as_json else [_check(one) for one in found], as_json=as_json)
    if any(check.state == "bad" for check in found):
        raise typer.Exit(1)


def _check(one: Check) -> dict[str, str]:
    return {"part": one.part, "state": one.state, "found": f"{one.configured}: {one.detail}"}


def unlock(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Break the lock that a dead pull left on HDFS or S3.

    Shows who held it. A local folder needs no unlocking.
    """
    from jobs.operate import unlocking as job

    console.show(job.run(options.load(conf, tables=tables)), as_json=as_json)


def rooms(out: Annotated[Path, typer.Option(help="zip file to write")], as_json: Json = False) -> None:
    """Write the program as a zip for spark-submit --py-files.

    See docs/cluster.md.
    """
    from jobs.spark import code_zip

    path = code_zip.write(out)
    console.show({"rooms": str(path), "size_bytes": path.stat().st_size}, as_json=as_json)
