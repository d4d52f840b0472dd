"""The command `collect`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from features.units import parse_bytes, parse_duration
from jobs.cli import console, options
from jobs.cli.options import Conf, Json


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
    """Keep the g-streams that caches send by UDP.

    Up to [collect] quota. Runs until it is stopped; run it as a service.
    """
    from jobs.ingest import collect as job
    from jobs.operate import prometheus

    answer = job.run(
        host=host,
        port=port,
        out=out,
        roll_bytes=parse_bytes(roll_size),
        roll_s=parse_duration(roll_every),
        quota_bytes=options.load(conf).collect.quota,
        log_every_s=parse_duration(log_every),
        log=console.log,
        now_s=time.time,
        figures=lambda counts: prometheus.leave_counts("collect", {"port": str(port)}, counts, console.warn),
    )
    if as_json:
        console.show(answer, as_json=True)
