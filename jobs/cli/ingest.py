"""The commands that read records into the tables: `pull` and `scan`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from features.times import DAY_S, parse_as_of, parse_day
from jobs.cli import console, options
from jobs.cli.options import Conf, Force, Json, TablesRoot


def pull(
    source: Annotated[str, typer.Option(help="kind of records, for example rucio_traces; see docs/pull.md")],
    input: Annotated[str, typer.Option(help="path or glob of the raw files")],
    day: Annotated[
        str | None, typer.Option(help="UTC day that dates the rejected rows; defaults to today")
    ] = None,
    new_only: Annotated[
        bool, typer.Option("--new-only", help="leave out files that an earlier --new-only pull has taken")
    ] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Read raw records into the accesses and files tables.

    Rows that are refused are counted in the table rejects, with their reason.
    """
    from jobs.ingest import pull as job

    with console.progress(f"pulling {source}", quiet=as_json):
        answer = job.run(
            options.load(conf, tables=tables),
            source=source,
            path=input,
            day_s=int(time.time()) // DAY_S * DAY_S if day is None else parse_day(day),
            new_only=new_only,
        )
    console.show(answer, as_json=as_json)


def scan(
    cache: Annotated[str, typer.Option(help="name of the cache in its records")],
    namespace: Annotated[
        Path | None,
        typer.Option(help="the cache's oss.localroot, with its .cinfo files; defaults to its settings"),
    ] = None,
    space: Annotated[
        list[Path] | None, typer.Option(help="a folder of oss.space that the namespace's links lead to")
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="time of the inventory; defaults to now")] = None,
    force: Force = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Take an XCache's inventory and remembered reads on its host.

    The inventory goes into the table contents, the reads that cinfo files remember into accesses.
    """
    from jobs.ingest import scan as job

    with console.progress(f"scanning {cache}", quiet=as_json):
        answer = job.run(
            options.load(conf, tables=tables),
            namespace=namespace,
            spaces=space or [],
            cache=cache,
            as_of_s=None if as_of is None else parse_as_of(as_of),
            force=force,
        )
    console.show(answer, as_json=as_json)
