"""The commands about jobs that have ended: `efficiency`, `refit` and `halves`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features.common.errors import InputError
from jobs import text
from jobs.cli import console, options, parsing
from jobs.cli.options import Conf, Json, TablesRoot

_FIRST = typer.Option("--from", help="first UTC day of the jobs' starts")
_LAST = typer.Option("--to", help="last UTC day of the jobs' starts")
Site = Annotated[str | None, typer.Option(help="only jobs at this site")]
Activity = Annotated[str | None, typer.Option(help="only analysis, or only production")]


def efficiency(
    since: Annotated[str, _FIRST],
    until: Annotated[str, _LAST],
    site: Site = None,
    activity: Activity = None,
    out: options.OutPage = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Report CPU efficiency and failures of jobs by where their data were.

    Local, from a cache's disk (hit), through a cache (miss), or past all caches (remote): by place, kind of
    work and distance, with intervals.
    """
    settings, span = options.load(conf, tables=tables), parsing.days(since, until)
    from jobs.efficiency import efficiency as job
    from jobs.efficiency.reads import Chosen

    with console.progress("efficiency", quiet=as_json):
        answer = job.run(settings, Chosen(*span, site=site, activity=activity), out=out)
    if as_json:
        console.show(answer, as_json=True)
        return
    for title, rows in (("place", answer.by_place), ("kind", answer.by_kind), ("region", answer.by_region)):
        columns = tuple(dict.fromkeys(("place", title, *text.EFFICIENCY_COLUMNS)))
        console.show(rows, as_json=False, title=f"Jobs by {title}", columns=columns)
    found = f"the reads of {text.percent(answer.found_share, 1)} of {text.count(answer.jobs)} jobs were found"
    console.sentence(f"{found}; {text.count(answer.shared_reads)} reads fit several jobs")


def refit(
    since: Annotated[str, _FIRST],
    until: Annotated[str, _LAST],
    site: Site = None,
    activity: Activity = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Print settings of the benefit model that fit the site's own jobs.

    CPU efficiency by distance, of hits, how much longer misses take, and the rate at which jobs read.
    """
    settings, span = options.load(conf, tables=tables), parsing.days(since, until)
    from jobs.efficiency import refit as job
    from jobs.efficiency.reads import Chosen

    answer = job.run(settings, Chosen(*span, site=site, activity=activity))
    if as_json:
        console.show(answer, as_json=True)
        return
    console.line(answer.toml)
    if answer.missing:
        console.notes([f"too few tasks show {', '.join(answer.missing)}"])


def halves(
    name: Annotated[str, typer.Argument(help="name of the comparison; another name makes other halves")],
    nodes: Annotated[
        Path | None, typer.Option(help="print the half of each node of this file, one per line", exists=True)
    ] = None,
    since: Annotated[str | None, _FIRST] = None,
    until: Annotated[str | None, _LAST] = None,
    site: Site = None,
    activity: Activity = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Compare worker nodes that use the cache with those that do not.

    Half of the nodes, by hash, use it. --nodes gives the halves; later, --from and --to the core hours saved,
    with an interval, and the days that 2 % need.
    """
    from jobs.efficiency import halves as job

    if (nodes is None) == (since is None) or (since is None) != (until is None):
        raise InputError("give either --nodes or --from and --to")
    if nodes is not None:
        for node, half in job.assigned(name, nodes):
            console.line(f"{node} {half}")
        return
    settings, span = options.load(conf, tables=tables), parsing.days(str(since), str(until))
    from jobs.efficiency.reads import Chosen

    answer = job.run(settings, Chosen(*span, site=site, activity=activity), name=name)
    if as_json:
        console.show(answer, as_json=True)
        return
    for sentence in job.sentences(answer):
        console.sentence(sentence)
