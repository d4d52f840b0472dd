"""The command `steward`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import console, options
from jobs.cli.options import Cache, Conf, Json, TablesRoot

if TYPE_CHECKING:
    from prefetch.steward.figures import Figures


def steward(
    cache: Cache,
    force: Annotated[
        bool, typer.Option("--force", help="evict what is above the high watermark now, however much it is")
    ] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Keep a cache below its high watermark by evicting in our order.

    Runs until it is stopped; run it as a service on the cache's host. Without it the cache is plain LRU.
    """
    from jobs.operate import prometheus, stewards
    from jobs.steward import steward as job

    settings = options.load(conf, tables=tables)
    folder = settings.metrics.folder

    def leave(found: Figures) -> None:
        if folder:
            prometheus.leave(Path(folder), f"steward-{found.cache}", stewards.samples(found))

    answer = job.run(settings, cache=cache, log=console.log, figures=leave, force=force)
    if folder:
        prometheus.leave(Path(folder), f"steward-{cache}", [])
    if as_json:
        console.show(answer, as_json=True)
