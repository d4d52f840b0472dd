"""The commands of `cachecast rucio`: what Rucio knows of the caches."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from features.units import parse_duration
from jobs.cli import console, options
from jobs.cli.options import Conf, Force, Json

app = typer.Typer(
    help="Report to Rucio what the caches hold, and keep their RSEs safe.",
    no_args_is_help=True,
    add_completion=False,
)

Cache = Annotated[str, typer.Option(help="name of a configured cache with an rse")]


@app.command("setup-rse")
def setup_rse(
    cache: Cache,
    prefix: Annotated[
        str, typer.Option(help="path in the cache before the files' own, as /atlas/rucio")
    ] = "/",
    algorithm: Annotated[
        Literal["hash", "identity"], typer.Option(help="how Rucio makes a path: hash (ATLAS), identity (CMS)")
    ] = "hash",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Make the RSE of a cache: volatile, not writable, not deletable, read only; or make it so again."""
    from jobs.push import rucio_sync

    answer = rucio_sync.set_up(options.load(conf), cache=cache, prefix=prefix, algorithm=algorithm)
    console.show(answer, as_json=as_json)


@app.command()
def check(
    cache: Annotated[str | None, typer.Option(help="one cache, instead of all with an rse")] = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Look whether the RSEs of the caches are misused, or could be; exit code 1 if something is bad."""
    from jobs.push import rucio_sync

    checks = rucio_sync.check(options.load(conf), cache=cache)
    console.show(checks, as_json=as_json)
    if any(one.state == "bad" for one in checks):
        raise typer.Exit(1)


@app.command()
def sync(
    cache: Cache,
    dry_run: Annotated[bool, typer.Option(help="show how much would be told, and tell nothing")] = False,
    wait: Annotated[str, typer.Option(help="how long to wait for Rucio to show it")] = "60s",
    recheck: Annotated[
        bool, typer.Option(help="ask Rucio for everything told before, and tell again what it has lost")
    ] = False,
    force: Force = False,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Bring the replicas at a cache's RSE in step with the complete files that the cache holds now."""
    from jobs.push import rucio_sync

    with console.progress(f"telling Rucio of {cache}", quiet=as_json):
        answer = rucio_sync.sync(
            options.load(conf),
            cache=cache,
            dry_run=dry_run,
            wait_s=parse_duration(wait),
            recheck=recheck,
            force=force,
        )
    console.show(answer, as_json=as_json)
