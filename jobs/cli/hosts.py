"""The commands that run on a cache's host: `scan` and `collect`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from features.times import parse_as_of
from features.units import parse_bytes, parse_duration
from jobs.cli import console
from jobs.cli.options import Conf, Json, TablesRoot
from jobs.settings.tree import Settings


def scan(
    cache: Annotated[str, typer.Option(help="name of the cache, as its records carry it")],
    namespace: Annotated[
        Path | None,
        typer.Option(help="the cache's oss.localroot: where its .cinfo files are; else as its settings say"),
    ] = None,
    space: Annotated[
        list[Path] | None, typer.Option(help="a folder of oss.space that the namespace's links lead to")
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="moment of the inventory, instead of now")] = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Walk an XCache's namespace on its host: inventory into contents, remembered reads into accesses."""
    from jobs import steps

    with console.progress(f"scanning {cache}", quiet=as_json):
        answer = steps.scan(
            Settings.load(conf, tables=tables),
            namespace=namespace,
            spaces=space or [],
            cache=cache,
            as_of_s=None if as_of is None else parse_as_of(as_of),
        )
    console.show(answer, as_json=as_json)


def collect(
    port: Annotated[int, typer.Option(help="UDP port to listen on; 0 takes any free one")],
    out: Annotated[Path, typer.Option(help="folder for the captures, made if it is not there")],
    host: Annotated[
        str, typer.Option(help="address to listen on; 0.0.0.0 for caches elsewhere")
    ] = "127.0.0.1",
    roll_size: Annotated[str, typer.Option(help="finish a file at this size")] = "64MB",
    roll_every: Annotated[str, typer.Option(help="finish a file this long after its first datagram")] = "1h",
    log_every: Annotated[str, typer.Option(help="time between two lines of counts")] = "1m",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Keep the g-streams that caches send by UDP, up to [collect] quota; run it as a service."""
    from jobs.ingest.collect import run
    from jobs.operate import prometheus as job_figures

    answer = run(
        host=host,
        port=port,
        out=out,
        roll_bytes=parse_bytes(roll_size),
        roll_s=parse_duration(roll_every),
        quota_bytes=Settings.load(conf).collect.quota,
        log_every_s=parse_duration(log_every),
        log=lambda line: console.err.print(escape(line), highlight=False, soft_wrap=True),
        now_s=time.time,
        figures=lambda counts: job_figures.leave_counts("collect", {"port": str(port)}, counts, console.warn),
    )
    if as_json:
        console.show(answer, as_json=True)
