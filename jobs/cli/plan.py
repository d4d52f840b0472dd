"""The commands that decide: `plan` and `never-cache`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features.times import parse_as_of
from jobs.cli import console, options
from jobs.cli.options import AsOf, Cache, Conf, Force, Json, TablesRoot


def plan(
    cache: Cache,
    as_of: AsOf,
    explain: Annotated[
        str | None, typer.Option(help="say why this file (a did or a path) is planned or not; write nothing")
    ] = None,
    force: Force = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Decide what a cache should prefetch, pin and evict.

    From the cache's own inventory and the region's predictions; every item has a reason.
    """
    from jobs.plan import plan as job

    settings, as_of_s = options.load(conf, tables=tables), parse_as_of(as_of)
    if explain is None:
        answer = job.run(settings, cache=cache, as_of_s=as_of_s, force=force)
        console.show_warning(answer, as_json=as_json)
    else:
        why = job.explained(settings, cache=cache, as_of_s=as_of_s, item=explain)
        console.show(why, as_json=as_json)


def never_cache(
    cache: Cache,
    out: Annotated[Path, typer.Option(help="the file to write, where the cache's server reads it")],
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Write the rules to never cache as XRootD's blacklist.

    A cache reads the file when it starts.
    """
    from jobs.plan import never_cache as job

    console.show(job.run(options.load(conf, tables=tables), cache=cache, out=out), as_json=as_json)
