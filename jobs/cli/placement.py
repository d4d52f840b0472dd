"""The commands of placement and of Rucio: `place`, `serve` and the group `rucio`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from features.common.times import parse_as_of
from features.common.units import parse_duration
from jobs.cli import console, options
from jobs.cli.options import AsOf, Force

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings

_WithRse = Annotated[str, typer.Option("--cache", help="name of a configured cache with an rse")]

rucio = typer.Typer(
    name="rucio",
    help="Report to Rucio what the caches hold, and keep their RSEs safe.",
    no_args_is_help=True,
    add_completion=False,
)


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
