"""The commands of the placement service: `place` and `serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from features.times import parse_as_of
from jobs.cli import console, options
from jobs.cli.options import AsOf, Conf, Json, TablesRoot


def place(as_of: AsOf, conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Place datasets, and store it for the placement service.

    By predicted popularity, and by what the caches hold.
    """
    from jobs.placement import refresh as job

    answer = job.run(options.load(conf, tables=tables), as_of_s=parse_as_of(as_of))
    console.show(answer, as_json=as_json)


def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on; defaults to [serve] host")] = None,
    port: Annotated[
        int | None, typer.Option(help="port to listen on; defaults to [serve] port; 0: any free one")
    ] = None,
    conf: Conf = None,
) -> None:
    """Answer Rucio, caches and batch systems about placement.

    Runs until it is stopped; run it as a service.
    """
    from jobs.overview import pages
    from jobs.placement import serve as job

    settings = options.load(conf)
    job.run(settings, pages.Pages(settings), host=host, port=port, log=console.log)
