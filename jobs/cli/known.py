"""The commands for what a site knows without predictions: `prefill`, `queue` and `never-cache`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from features.times import parse_as_of
from jobs.cli import console
from jobs.cli.options import Conf, Json, TablesRoot
from jobs.settings.tree import Settings

AsOf = Annotated[str | None, typer.Option(help="moment of the decision, as 2026-03-01T04:00:00Z, not now")]


def prefill(
    cache: Annotated[str, typer.Option(help="name of a configured cache")],
    dataset: Annotated[
        list[str] | None, typer.Option(help="a dataset the task will read, as its did; may be repeated")
    ] = None,
    files: Annotated[
        Path | None, typer.Option(help="a list of files it will read: a did or a path a line")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="how many jobs will read them")] = 1,
    start: Annotated[str | None, typer.Option(help="when they are expected to start")] = None,
    as_of: AsOf = None,
    dry_run: Annotated[bool, typer.Option(help="show what would be fetched, and touch nothing")] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Fetch what a task will read into a cache before it is submitted, and let the next plans hold it."""
    from jobs.push import prefill as job

    request = job.Request(
        dataset or [],
        [] if files is None else job.listed(files),
        jobs,
        None if start is None else parse_as_of(start),
    )
    with console.progress(f"prefilling {cache}", quiet=as_json) as advance:
        answer = job.run(
            Settings.load(conf, tables=tables),
            request,
            cache=cache,
            as_of_s=int(time.time()) if as_of is None else parse_as_of(as_of),
            dry_run=dry_run,
            on_progress=advance,
        )
    console.show(answer, as_json=as_json)


def queue(
    name: Annotated[str, typer.Option(help="what the queue is called, as htcondor")],
    input: Annotated[str, typer.Option(help="its jobs: a JSON or CSV file, or a URL that answers JSON")],
    site: Annotated[
        str | None, typer.Option(help="whose caches its jobs read through, where entries do not tell")
    ] = None,
    as_of: AsOf = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Take what queued jobs will read from a batch system; plans from then on know of it."""
    from jobs.push import prefill as job

    answer = job.queue(
        Settings.load(conf, tables=tables),
        name=name,
        source=input,
        as_of_s=int(time.time()) if as_of is None else parse_as_of(as_of),
        site=site,
    )
    console.show(answer, as_json=as_json)


def never_cache(
    cache: Annotated[str, typer.Option(help="name of a configured cache")],
    out: Annotated[Path, typer.Option(help="the file to write, where the cache's server reads it")],
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Write the rules to never cache as XRootD's blacklist, which a cache reads when it starts."""
    from jobs.plan import never_cache as job

    console.show(job.run(Settings.load(conf, tables=tables), cache=cache, out=out), as_json=as_json)
