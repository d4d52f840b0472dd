"""The group `model`: orders of eviction between sites."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli import console, options
from jobs.cli.options import Conf, Json, TablesRoot, file_to_write

model = typer.Typer(
    name="model",
    help="Exchange orders of eviction with other sites.",
    no_args_is_help=True,
    add_completion=False,
)


@model.command("export")
def export_order(
    out: Annotated[Path, typer.Option(help="file to write, for example order.json", callback=file_to_write)],
    candidate: Annotated[
        bool, typer.Option("--candidate", help="the newest training's order, whether or not it was promoted")
    ] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Write the region's promoted order of eviction as a file for other sites.

    The file has no names of files, users or datasets.
    """
    from jobs.train import exchange as job
    from models.serving.names import CANDIDATE, STEWARD

    settings = options.load(conf, tables=tables)
    console.show(job.export(settings, out, alias=CANDIDATE if candidate else STEWARD), as_json=as_json)


@model.command("import")
def import_order(
    file: Annotated[Path, typer.Argument(help="file of `model export`", exists=True, dir_okay=False)],
    sha256: Annotated[str, typer.Option(help="digest that `model export` showed")],
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Take another site's order of eviction in, for stewards to try.

    Until an order of the region is promoted, stewards with the policy auto follow it while it surely misses
    fewer bytes on their cache's own reads.
    """
    from jobs.train import exchange as job

    settings = options.load(conf, tables=tables)
    answer = job.take(settings, file, sha256=sha256, now_s=int(time.time()))
    console.show(answer, as_json=as_json)
