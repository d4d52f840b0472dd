"""The commands that measure: `efficiency` of jobs, `compare-caches`, and `site-test`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.common.errors import TargetUnavailable
from features.common.times import parse_day
from features.common.units import parse_bytes, parse_duration
from jobs.cli import console, options, parsing
from jobs.cli.options import Cache, file_to_write
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings


def efficiency(
    settings: Settings,
    since: Annotated[str, typer.Option("--from", help="first UTC day of the jobs' starts")],
    until: Annotated[str, typer.Option("--to", help="last UTC day of the jobs' starts")],
    site: Annotated[str | None, "only jobs at this site"] = None,
    activity: Annotated[str | None, "only analysis, or only production"] = None,
    source: Annotated[str | None, "only jobs of this source, for example wmarchive"] = None,
    out: options.OutPage = None,
) -> None:
    """Report CPU efficiency and failures of jobs by where their data were.

    Local, from a cache's disk (hit), through a cache (miss), or past all caches (remote): by place, kind of
    work and distance, with intervals.
    """
    first, last = parsing.days(since, until)
    from jobs.studies.efficiency import efficiency as job
    from jobs.studies.efficiency.reads import JobSelection

    with console.progress("efficiency"):
        answer = job.run(settings, JobSelection(first, last, site, activity, source), out=out)
    if console.shown_as_json(answer):
        return
    console.sentences(job.answers(answer))
    for title, rows in (("place", answer.by_place), ("kind", answer.by_kind), ("region", answer.by_region)):
        columns = tuple(dict.fromkeys(("place", title, *text.EFFICIENCY_COLUMNS)))
        console.show(rows, title=f"Jobs by {title}", columns=columns)
    if len(answer.sources) > 1:
        console.warn(f"a job that several of {', '.join(answer.sources)} report counts twice: give --source")
    if answer.crowded_hours:
        console.warn(
            f"files that too many jobs read at once, in {text.count(answer.crowded_hours)} hours of a file, "
            "do not count for any of them"
        )
    share = f"the reads of {text.percent(answer.found_share, 1)} of {text.count(answer.jobs)} jobs were found"
    console.sentence(f"{share}; {text.count(answer.shared_reads)} reads fit several jobs")


def compare_caches(
    settings: Settings,
    steward: Annotated[str, typer.Argument(help="the cache that has a steward")],
    other: Annotated[str, typer.Argument(help="a cache of the same federation that has none")],
    began: Annotated[str, "UTC day on which the steward began"],
    since: Annotated[
        str, typer.Option("--from", help="first UTC day of the reads, before the steward began")
    ],
    until: Annotated[str, typer.Option("--to", help="last UTC day of the reads")],
    settle: Annotated[str, "time after that which does not count"] = "3d",
) -> None:
    """Compare a cache that has a steward with one of its federation that has none, by their own records.

    The bytes saved, with an interval: the difference of both byte hit ratios, less that of the days before.
    """
    from jobs.studies.efficiency import cache_pair as job

    first, last = parsing.days(since, until)
    answer = job.run(
        settings,
        steward=steward,
        other=other,
        since_s=parse_day(first),
        until_s=parse_day(last),
        began_s=parse_day(began),
        settled_s=parse_duration(settle),
    )
    if not console.shown_as_json(answer):
        console.sentences(job.sentences(answer))


def site_test(
    settings: Settings,
    cache: Cache,
    origin: Annotated[
        list[str] | None,
        "root://host:port of a server that the cache fetches from; may be repeated",
    ] = None,
    file: Annotated[
        list[str] | None,
        "path of a file to read, not in the cache; may be repeated; else recorded ones",
    ] = None,
    bytes_: Annotated[
        str, typer.Option("--bytes", help="limit of what is read, and fetched by the cache, together")
    ] = "5GB",
    time_: Annotated[str, typer.Option("--time", help="limit of the time it takes")] = "10m",
    repeat: Annotated[int, typer.Option(min=1, max=100, help="rounds")] = 3,
    clients: Annotated[str, "numbers of clients that read at once"] = "1,4,16,64",
    files: Annotated[int, typer.Option(min=1, max=64, help="how many files, unless named by --file")] = 24,
    write: Annotated[Path | None, "also write the settings to this TOML file", file_to_write] = None,
    out: options.OutPage = None,
) -> None:
    """Measure what a cache and its origins give to jobs.

    Prints rates, settings for [regions], [benefit] and [push], and advice. What the cache fetches for it is
    evicted again.
    """
    from jobs.studies.site_test import run as job
    from jobs.studies.site_test import site_page
    from jobs.studies.site_test.schedule import Limits

    limits = Limits(
        n_bytes=parse_bytes(bytes_),
        seconds=parse_duration(time_),
        repeat=repeat,
        clients=tuple(parsing.counts(clients)),
        files=files,
    )
    if write is not None:
        site_page.check_settings_file(write)
    request = job.Request(cache, origin or [], file or [], limits)
    with console.progress(f"testing {cache}") as advance:
        answer = job.run(settings, request, say=console.log, on_progress=advance)
    site_page.write(answer, settings_to=write, page_to=out)
    if not console.shown_as_json(answer):
        console.sentences(answer.findings)
        console.show(answer.rates, title="Rates", columns=text.RATE_COLUMNS)
        console.notes(answer.notes)
        console.line(f"\n{answer.settings}\n")
        console.sentence(answer.advice)
    if answer.failures:
        raise TargetUnavailable("; ".join(answer.failures))
