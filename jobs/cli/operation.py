"""The commands for the operator of a site: `status`, `doctor`, `place`, `serve`, the group `rucio` …"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from features.common import files
from features.common.times import as_of_label, parse_as_of
from features.common.units import parse_duration
from jobs.cli import console, options
from jobs.cli.options import AsOf, Force, OutPage, file_to_write
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings
    from jobs.operator.operate.alarms import CacheStatus, Status
    from prefetch.steward.figures import StewardFigures

_WithRse = Annotated[str, typer.Option("--cache", help="name of a configured cache with an rse")]

rucio = typer.Typer(
    name="rucio",
    help="Report to Rucio what the caches hold, and keep their RSEs safe.",
    no_args_is_help=True,
    add_completion=False,
)


def status(settings: Settings, html: OutPage = None) -> None:
    """Show caches, plans, pushes, the model and alarms.

    Exit code 1 if there is an alarm.
    """
    from jobs.operator.operate import prometheus
    from jobs.operator.operate import status as job

    now_s = int(time.time())
    if html is not None:
        from jobs.operator.overview.page import Renderer

        html.parent.mkdir(parents=True, exist_ok=True)
        files.write(html, Renderer(settings, began_s=now_s).file(now_s=now_s))
    found = job.run(settings, now_s=now_s)
    if settings.metrics.folder:
        prometheus.leave(Path(settings.metrics.folder), "state", prometheus.of_status(found))
    if not console.shown_as_json(found):
        _show(found)
    if found.alarms:
        raise typer.Exit(1)


def _show(found: Status) -> None:
    from jobs.operator.operate.status import champion_line

    console.out.print(f"[bold]{escape(found.region)}[/bold] at {found.at}", highlight=False)
    console.sentence(f"champion: {champion_line(found)}")
    scored = f"{text.count(found.predictions)} at {found.predictions_at} by {found.scored_by}"
    console.sentence(f"predictions: {scored if found.predictions_at else 'none'}")
    if found.caches:
        console.show([_cache(one) for one in found.caches])
    if found.alarms:
        console.line(f"{len(found.alarms)} alarms, each with a section in docs/troubleshoot.md:")
        for one in found.alarms:
            console.sentence(f"{one.name} ({one.about}): {one.text}. Do: {one.remedy}")
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
        "steward": "none" if one.steward is None else steward_line(one.steward),
    }


def steward_line(found: StewardFigures) -> str:
    """The order that a steward follows, how full the cache is, and what that has saved."""
    order, version, since_s = found.following, found.version, found.version_since_s
    if version is not None and since_s is not None:
        order = f"{order} ({version} serves since {as_of_label(int(since_s))})"
    used, most, evicted, saved = (
        text.text("bytes", n_bytes)
        for n_bytes in (found.used_bytes, found.target_bytes, found.evicted_bytes_hour, found.saved_bytes)
    )
    against = f"{saved} saved against LRU"
    if found.saved_bytes < 0:
        against = f"{saved.removeprefix('-')} more fetched than by LRU"
    why = "; ".join(f"{text.count(one.files)} files: {reason}" for reason, one in found.last_hour.items())
    hour = f"{evicted} evicted in the last hour" + (f" ({why})" if why else "")
    beside = "" if found.server is None else f" beside XRootD {found.server.removeprefix('v')}"
    first = f"{text.count(found.first_files)} files ({text.text('bytes', found.first_bytes)}) go first"
    return f"{order}{beside}: {used} of {most}, {hour}, {first}, {against}"


def _items(at: str | None, counts: dict[str, int]) -> str:
    return "none" if at is None else f"{at}: {text.text('items', counts)}"


def doctor(settings: Settings) -> None:
    """Show what is configured, and whether it answers.

    Exit code 1 if something does not.
    """
    from jobs.operator.operate import doctor as job

    checks = job.run(settings)
    rows = [
        {"part": check.part, "state": check.state, "found": f"{check.configured}: {check.detail}"}
        for check in checks
    ]
    console.show(checks, rows=rows)
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(1)


def unlock(settings: Settings) -> None:
    """Break the lock that a dead pull left on HDFS or S3.

    Shows who held it. A local folder needs no unlocking.
    """
    from jobs.ground.store.tables import Tables

    at = Tables.of(settings)
    console.show({"tables": at.root, "held_by": at.unlock("pull")})


def package(
    out: Annotated[Path, typer.Option(help="zip file to write", callback=file_to_write)],
) -> None:
    """Write the program as a zip for spark-submit --py-files.

    See docs/hdfs.md.
    """
    from jobs.ground.spark import write_code

    out.parent.mkdir(parents=True, exist_ok=True)
    path = write_code(out)
    console.show({"package": str(path), "size_bytes": path.stat().st_size})


def place(settings: Settings, as_of: AsOf) -> None:
    """Place datasets, and store it for the placement service.

    By predicted popularity, and by what the caches hold.
    """
    from jobs.operator.placement import refresh as job

    answer = job.run(settings, as_of_s=parse_as_of(as_of))
    console.show(answer)


def serve(
    settings: Settings,
    host: Annotated[str | None, typer.Option(help="address to listen on; defaults to [serve] host")] = None,
    port: Annotated[
        int | None, typer.Option(help="port to listen on; defaults to [serve] port; 0: any free one")
    ] = None,
) -> None:
    """Answer Rucio, caches and batch systems about placement.

    Runs until it is stopped; run it as a service.
    """
    from jobs.operator.overview.page_worker import PageWorker
    from jobs.operator.placement import serve as job

    job.run(settings, PageWorker(settings), host=host, port=port, log=console.log)


@rucio.command("setup-rse")
@options.unfolded
def setup_rse(
    settings: Settings,
    cache: _WithRse,
    prefix: Annotated[
        str, typer.Option(help="path in the cache before the files' own, as /atlas/rucio")
    ] = "/",
    algorithm: Annotated[
        Literal["hash", "identity"], typer.Option(help="how Rucio makes a path: hash (ATLAS), identity (CMS)")
    ] = "hash",
) -> None:
    """Make the RSE of a cache: volatile, not writable, not deletable, read only; or make it so again."""
    from jobs.loop.push import rucio_sync as job

    answer = job.set_up(settings, cache=cache, prefix=prefix, algorithm=algorithm)
    console.show(answer)


@rucio.command()
@options.unfolded
def check(
    settings: Settings,
    cache: Annotated[str | None, typer.Option(help="one cache, instead of all with an rse")] = None,
) -> None:
    """Look whether the RSEs of the caches are misused, or could be; exit code 1 if something is bad."""
    from jobs.loop.push import rucio_sync as job

    checks = job.check(settings, cache=cache)
    console.show(checks)
    if any(one.state == "bad" for one in checks):
        raise typer.Exit(1)


@rucio.command()
@options.unfolded
def sync(
    settings: Settings,
    cache: _WithRse,
    dry_run: Annotated[bool, typer.Option(help="show how much would be told, and tell nothing")] = False,
    wait: Annotated[str, typer.Option(help="how long to wait for Rucio to show it")] = "60s",
    recheck: Annotated[
        bool, typer.Option(help="ask Rucio for everything told before, and tell again what it has lost")
    ] = False,
    force: Force = False,
) -> None:
    """Bring the replicas at a cache's RSE in step with the complete files that the cache holds now."""
    wait_s = parse_duration(wait)
    from jobs.loop.push import rucio_sync as job

    with console.progress(f"telling Rucio of {cache}"):
        answer = job.sync(settings, cache=cache, dry_run=dry_run, wait_s=wait_s, recheck=recheck, force=force)
    console.show(answer)
