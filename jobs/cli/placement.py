"""The commands of the placement service: `place` makes what `serve` tells."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from features.times import parse_as_of
from jobs.cli import console
from jobs.cli.options import Conf, Json, TablesRoot
from jobs.settings.tree import Settings


def place(
    as_of: Annotated[
        str, typer.Option(help="moment of the decision, as 2026-03-01T04:00:00Z; nothing later is used")
    ],
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Place datasets by predicted popularity and what caches hold, and store it for the placement service."""
    from jobs import serve_steps

    answer = serve_steps.place(Settings.load(conf, tables=tables), as_of_s=parse_as_of(as_of))
    console.show(answer, as_json=as_json)


def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on, instead of [serve] host")] = None,
    port: Annotated[
        int | None, typer.Option(help="port to listen on, instead of [serve] port; 0: any")
    ] = None,
    conf: Conf = None,
) -> None:
    """Answer Rucio, caches and batch systems about placement, until it is stopped; run it as a service."""
    from jobs import serve_steps

    serve_steps.serve(
        Settings.load(conf),
        host=host,
        port=port,
        log=lambda line: console.err.print(escape(line), highlight=False, soft_wrap=True),
    )
