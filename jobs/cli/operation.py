"""The commands for the operator of a site: `status`, `doctor`, `place`, `serve`, `files`, `rucio` …"""

from __future__ import annotations

import shutil
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from features.common.errors import InputError
from features.common.files import write
from features.common.times import as_of_label
from features.common.units import parse_duration
from jobs.cli import console, options, parsing
from jobs.cli.options import AsOf, Force, IfCurrent, OutPage, file_to_write
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings
    from jobs.operator.operate.alarms import CacheStatus, Status
    from prefetch.steward.figures import StewardFigures

_WithRse = Annotated[str, "name of a configured cache with an rse"]
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

        write(html, Renderer(settings, began_s=now_s).file(now_s=now_s))
    region = job.run(settings, now_s=now_s)
    of_status = prometheus.of_status(region)
    prometheus.leave(settings.metrics.folder, f"{region.region}-state", of_status, console.warn)
    if not console.shown_as_json(region):
        _show(region)
    if region.alarms:
        raise typer.Exit(1)


def _show(region: Status) -> None:
    from jobs.operator.operate.status import champion_line

    console.out.print(f"[bold]{escape(region.region)}[/bold] at {region.at}", highlight=False)
    console.sentence(f"champion: {champion_line(region)}")
    scored = f"{text.count(region.predictions)} at {region.predictions_at} by {region.scored_by}"
    console.sentence(f"predictions: {scored if region.predictions_at else 'none'}")
    if region.caches:
        console.show([_cache(cache) for cache in region.caches])
    for report in region.queues:
        console.sentence(f"queue {report.queue}: {report}")
    if region.alarms:
        n_alarms = len(region.alarms)
        each = "alarms, each with a section" if n_alarms > 1 else "alarm, with a section"
        console.line(f"{n_alarms} {each} in docs/troubleshoot.md:")
        for alarm in region.alarms:
            console.sentence(f"{alarm.name} ({alarm.about}): {alarm.text}. Do: {alarm.remedy}")
    else:
        console.line("no alarm")


def _cache(cache: CacheStatus) -> dict[str, object]:
    held = f"{text.text('held_bytes', cache.held_bytes)} of {text.text('bytes', cache.capacity_bytes)}"
    fill = "" if cache.fill_share is None else f" ({text.percent(cache.fill_share)})"
    pins = f"{text.count(cache.pins)}, {text.text('bytes', cache.pinned_bytes)}"
    return {
        "cache": cache.cache,
        "held": f"{held}{fill}, {text.text('files', cache.held_files)} files",
        "inventory": cache.inventory_at,
        "pins": pins if cache.pins else "none",
        "plan": _items(cache.plan_at, cache.plan),
        "push": _items(cache.push_at, cache.push),
        "steward": "none" if cache.steward is None else steward_line(cache.steward),
    }


def steward_line(figures: StewardFigures) -> str:
    """The order that a steward follows, how full the cache is, and what that has saved."""
    order, version, since_s = figures.following, figures.version, figures.version_since_s
    if version is not None and since_s is not None:
        order = f"{order} ({version} serves since {as_of_label(int(since_s))})"
    used, most = (text.text("bytes", n) for n in (figures.used_bytes, figures.target_bytes))
    evicted, saved = (text.text("bytes", n) for n in (figures.evicted_bytes_hour, figures.saved_bytes))
    against, since = f"{saved} saved against LRU", as_of_label(int(figures.started_s))
    if figures.saved_bytes < 0:
        against = f"{saved.removeprefix('-')} more fetched than by LRU"
    why = "; ".join(
        f"{text.count(total.files)} files: {reason}" for reason, total in figures.last_hour.items()
    )
    hour = f"{evicted} evicted in the last hour" + (f" ({why})" if why else "")
    beside = "" if figures.server is None else f" beside XRootD {figures.server.removeprefix('v')}"
    first = f"{text.count(figures.first_files)} files ({text.text('bytes', figures.first_bytes)}) go first"
    counted = [(figures.evicted_bytes_hour, hour), (figures.first_files, first)]
    did = "".join(f", {words}" for n, words in counted if n)
    return f"{order}{beside}: {used} of {most}{did}, {against} since {since}"


def _items(at: str | None, counts: dict[str, int]) -> str:
    return "none" if at is None else f"{at}: {text.text('items', counts)}"


def doctor(settings: Settings) -> None:
    """Show what is configured, and whether it answers.

    Exit code 1 if something does not.
    """
    from jobs.operator.operate import doctor as job

    checks = list(job.run(settings))
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
    console.show({"tables": at.root, "held_by": at.unlock()})


def package(out: Annotated[Path, "zip file to write", file_to_write]) -> None:
    """Write the program as a zip for spark-submit --py-files.

    See docs/hdfs.md.
    """
    from jobs.ground.spark import write_code

    path = write_code(out)
    console.show({"package": str(path), "size_bytes": path.stat().st_size})


def place(settings: Settings, as_of: AsOf = None, if_current: IfCurrent = False) -> None:
    """Place datasets, and store it for the placement service.

    By predicted popularity, and by what the caches hold.
    """
    from jobs.operator.operate import due as times
    from jobs.operator.placement import refresh as job

    as_of_s = parsing.newest(settings, "predictions", as_of)
    if if_current:
        times.check_current(settings, as_of_s=as_of_s, now_s=int(time.time()))
    answer = job.run(settings, as_of_s=as_of_s, if_current=if_current)
    console.show(answer)


def serve(
    settings: Settings,
    host: Annotated[str | None, "address to listen on; defaults to [serve] host"] = None,
    port: Annotated[int | None, "port to listen on; defaults to [serve] port; 0: any free one"] = None,
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
    prefix: Annotated[str, "path in the cache before the files' own, as /atlas/rucio"] = "/",
    algorithm: Annotated[
        Literal["hash", "identity"], "how Rucio makes a path: hash (ATLAS), identity (CMS)"
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
    cache: Annotated[str | None, "one cache, instead of all with an rse"] = None,
) -> None:
    """Look whether the RSEs of the caches are misused, or could be; exit code 1 if something is bad."""
    from jobs.loop.push import rucio_sync as job

    checks = job.check(settings, cache=cache)
    console.show(checks)
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(1)


@rucio.command()
@options.unfolded
def sync(
    settings: Settings,
    cache: _WithRse,
    dry_run: Annotated[bool, "show how much would be reported, and report nothing"] = False,
    wait: Annotated[str, "how long to wait for Rucio to show it"] = "60s",
    recheck: Annotated[
        bool,
        typer.Option(help="ask Rucio for all that was reported, also by a journal that was lost since"),
    ] = False,
    force: Force = False,
) -> None:
    """Bring the replicas at a cache's RSE in step with the complete files that the cache holds now."""
    wait_s = parse_duration(wait)
    from jobs.loop.push import rucio_sync as job

    with console.progress(f"telling Rucio of {cache}"):
        answer = job.sync(settings, cache=cache, dry_run=dry_run, wait_s=wait_s, recheck=recheck, force=force)
    console.show(answer)


def files(out: Annotated[Path, "folder to write, a new or an empty one"]) -> None:
    """Write what the documentation names as conf/deploy.

    Units, the Helm chart, Prometheus's rules, Grafana's dashboard, HTCondor's hooks.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not empty, and may hold files that were edited: give another --out")
    shutil.copytree(
        str(resources.files("conf") / "deploy"),
        out,
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    console.show({"files": str(out), "n_files": sum(path.is_file() for path in out.rglob("*"))})
