"""The commands for known work: `prefill` and `queue`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from features.times import parse_as_of
from jobs.cli import console, options
from jobs.cli.options import Cache, Conf, Json, MaybeAsOf, TablesRoot
from jobs.cli.push import end


def prefill(
    cache: Cache,
    dataset: Annotated[
        list[str] | None, typer.Option(help="did of a dataset that the task will read; may be repeated")
    ] = None,
    files: Annotated[
        Path | None, typer.Option(help="a list of the files it will read: a did or a path per line")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="how many jobs will read them")] = 1,
    start: Annotated[str | None, typer.Option(help="when they are expected to start")] = None,
    as_of: MaybeAsOf = None,
    dry_run: Annotated[bool, typer.Option(help="show what would be fetched, and touch nothing")] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Fetch what a task will read into a cache before it is submitted.

    The next plans hold these files until the task has read them.
    """
    from jobs.push import prefill as job

    request = job.Request(
        dataset or [],
        [] if files is None else job.listed(files),
        jobs,
        None if start is None else parse_as_of(start),
    )
    with console.progress(f"prefilling {cache}", quiet=as_json) as advance:
        answer = job.run(
            options.load(conf, tables=tables),
            request,
            cache=cache,
            as_of_s=int(time.time()) if as_of is None else parse_as_of(as_of),
            dry_run=dry_run,
            on_progress=advance,
        )
    console.show(answer, as_json=as_json)
    if answer.pushed is not None:
        end(cache, answer.pushed)


def queue(
    name: Annotated[str, typer.Option(help="name of the queue, for example htcondor")],
    input: Annotated[str, typer.Option(help="its jobs: a JSON or CSV file, or a URL that answers JSON")],
    site: Annotated[
        str | None, typer.Option(help="site whose caches its jobs read through, where entries name none")
    ] = None,
    as_of: MaybeAsOf = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Take what queued jobs will read from a batch system.

    Plans from then on take these reads into account.
    """
    from jobs.ingest import queue as job

    answer = job.run(
        options.load(conf, tables=tables),
        name=name,
        source=input,
        as_of_s=int(time.time()) if as_of is None else parse_as_of(as_of),
        site=site,
    )
    console.show(answer, as_json=as_json)
