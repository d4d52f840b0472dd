"""The commands about jobs: `efficiency`, `refit` and `halves` of those that have ended; `compare-caches`.

What they get: `cached-fraction`, calculated, and `site-test`, measured.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.common.errors import InputError, TargetUnavailable
from features.common.times import parse_day
from features.common.units import parse_bytes, parse_duration
from jobs.cli import console, options, parsing
from jobs.cli.options import Cache, file_to_write
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings
    from jobs.studies.efficiency.reads import JobSelection
    from jobs.studies.site_test.run import SiteTest

_FIRST = typer.Option("--from", help="first UTC day of the jobs' starts")
_LAST = typer.Option("--to", help="last UTC day of the jobs' starts")


@dataclasses.dataclass(frozen=True)
class WhichJobs:
    """The options that choose jobs."""

    site: Annotated[str | None, typer.Option(help="only jobs at this site")] = None
    activity: Annotated[str | None, typer.Option(help="only analysis, or only production")] = None
    source: Annotated[str | None, typer.Option(help="only jobs of this source, for example wmarchive")] = None

    def of_days(self, since: str, until: str) -> JobSelection:
        """The jobs of these days. Raises InputError."""
        from jobs.studies.efficiency.reads import JobSelection

        first, last = parsing.days(since, until)
        return JobSelection(first, last, site=self.site, activity=self.activity, source=self.source)


def efficiency(
    settings: Settings,
    which: WhichJobs,
    since: Annotated[str, _FIRST],
    until: Annotated[str, _LAST],
    out: options.OutPage = None,
) -> None:
    """Report CPU efficiency and failures of jobs by where their data were.

    Local, from a cache's disk (hit), through a cache (miss), or past all caches (remote): by place, kind of
    work and distance, with intervals.
    """
    chosen = which.of_days(since, until)
    from jobs.studies.efficiency import efficiency as job

    with console.progress("efficiency"):
        answer = job.run(settings, chosen, out=out)
    if console.shown_as_json(answer):
        return
    from jobs.studies.efficiency.efficiency_page import answers

    for line in answers(answer):
        console.sentence(line)
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
    found = f"the reads of {text.percent(answer.found_share, 1)} of {text.count(answer.jobs)} jobs were found"
    console.sentence(f"{found}; {text.count(answer.shared_reads)} reads fit several jobs")


def refit(
    settings: Settings,
    which: WhichJobs,
    since: Annotated[str, _FIRST],
    until: Annotated[str, _LAST],
) -> None:
    """Print settings of the benefit model that fit the site's own jobs.

    CPU efficiency by distance, of hits, how much longer misses take, and the rate at which jobs read.
    """
    chosen = which.of_days(since, until)
    from jobs.studies.efficiency import refit as job

    answer = job.run(settings, chosen)
    if console.shown_as_json(answer):
        return
    console.line(answer.toml)
    if answer.missing:
        console.notes([f"too few tasks, or no plausible ones, show {', '.join(answer.missing)}"])


def halves(
    settings: Settings,
    which: WhichJobs,
    name: Annotated[str, typer.Argument(help="name of the comparison; another name makes other halves")],
    nodes: Annotated[
        Path | None, typer.Option(help="print the half of each node of this file, one per line", exists=True)
    ] = None,
    since: Annotated[str | None, _FIRST] = None,
    until: Annotated[str | None, _LAST] = None,
) -> None:
    """Compare worker nodes that use the cache with those that do not.

    Half of the nodes, by hash, use it. --nodes gives the halves; later, --from and --to the core hours saved,
    with an interval, and the days that 2 % need.
    """
    from jobs.studies.efficiency import halves as job

    if (nodes is None) == (since is None) or (since is None) != (until is None):
        raise InputError("give either --nodes or --from and --to")
    if nodes is not None:
        by_node = dict(job.assigned(name, nodes))
        if not console.shown_as_json(by_node):
            for node, half in by_node.items():
                console.line(f"{node} {half}")
        return
    answer = job.run(settings, which.of_days(str(since), str(until)), name=name)
    if console.shown_as_json(answer):
        return
    for sentence in job.sentences(answer):
        console.sentence(sentence)


def compare_caches(
    settings: Settings,
    steward: Annotated[str, typer.Argument(help="the cache that has a steward")],
    other: Annotated[str, typer.Argument(help="a cache of the same federation that has none")],
    began: Annotated[str, typer.Option(help="UTC day on which the steward began")],
    since: Annotated[
        str, typer.Option("--from", help="first UTC day of the reads, before the steward began")
    ],
    until: Annotated[str, typer.Option("--to", help="last UTC day of the reads")],
    settle: Annotated[str, typer.Option(help="time after that which does not count")] = "3d",
) -> None:
    """Compare a cache that has a steward with one of its federation that has none, by their own records.

    The bytes saved, with an interval: the difference of both byte hit ratios, less that of the days before.
    """
    from jobs.studies.efficiency import cache_pair as job

    (first, last) = parsing.days(since, until)
    answer = job.run(
        settings,
        steward=steward,
        other=other,
        since_s=parse_day(first),
        until_s=parse_day(last),
        began_s=parse_day(began),
        settled_s=parse_duration(settle),
    )
    if console.shown_as_json(answer):
        return
    for sentence in job.sentences(answer):
        console.sentence(sentence)


def cached_fraction(
    settings: Settings,
    volume: Annotated[str, typer.Option(help="bytes to process")] = "100TB",
    network: Annotated[str, typer.Option(help="shared network, per second, for example 750MB")] = "",
    cache_read: Annotated[str, typer.Option(help="read rate of a cache, per second")] = "",
    nodes: Annotated[int | None, typer.Option(min=1, help="caches")] = None,
    read_rate: Annotated[str, typer.Option(help="bytes that a slot processes per second")] = "",
    slots: Annotated[int | None, typer.Option(min=1, help="jobs at the same time")] = None,
    out: options.Out = None,
) -> None:
    """Show how much of a volume a site should cache, by KIT's Eq. 1.

    Rates default to those of [plan] cluster, else of [serve], [benefit] and the configured caches.
    """
    from jobs.studies.simulate import cached_fraction as job

    cluster = job.cluster_of(
        settings,
        network_bytes_s=parse_bytes(network) if network else None,
        cache_bytes_s_per_node=parse_bytes(cache_read) if cache_read else None,
        n_nodes=nodes,
        workflow_bytes_s_per_slot=parse_bytes(read_rate) if read_rate else None,
        n_slots=slots,
    )
    answer = job.run(cluster, volume_bytes=parse_bytes(volume))
    title = "Processing time by the cached fraction"
    console.notes(answer.notes)
    for line in answer.answers:
        console.sentence(line)
    console.show(answer, rows=answer.points, title=title)
    job.export_fraction(answer, out, title=title)


def site_test(
    settings: Settings,
    cache: Cache,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="root://host:port of a server that the cache fetches from; may be repeated"),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(help="path of a file to read, not in the cache; may be repeated; else recorded ones"),
    ] = None,
    bytes_: Annotated[
        str, typer.Option("--bytes", help="limit of what is read, and fetched by the cache, together")
    ] = "5GB",
    time_: Annotated[str, typer.Option("--time", help="limit of the time it takes")] = "10m",
    repeat: Annotated[int, typer.Option(min=1, max=100, help="rounds")] = 3,
    clients: Annotated[str, typer.Option(help="numbers of clients that read at once")] = "1,4,16,64",
    loops: Annotated[str, typer.Option(help="values of XRD_PARALLELEVTLOOP to compare")] = "1,10",
    streams: Annotated[str, typer.Option(help="values of XRD_SUBSTREAMSPERCHANNEL to compare")] = "1,4",
    files: Annotated[int, typer.Option(min=1, max=64, help="how many files, unless named by --file")] = 24,
    write: Annotated[
        Path | None, typer.Option(help="also write the settings to this TOML file", callback=file_to_write)
    ] = None,
    out: options.OutPage = None,
) -> None:
    """Measure what a cache and its origins give to jobs.

    Prints rates, outliers, settings for [regions], [benefit] and [push], and advice for clients. What the
    cache fetches for it is evicted again.
    """
    from jobs.studies.site_test import run as job
    from jobs.studies.site_test import site_page
    from jobs.studies.site_test.schedule import Limits

    limits = Limits(
        n_bytes=parse_bytes(bytes_),
        seconds=parse_duration(time_),
        repeat=repeat,
        clients=parsing.whole_numbers(clients),
        loops=parsing.whole_numbers(loops),
        streams=parsing.whole_numbers(streams),
        files=files,
    )
    if write is not None:
        site_page.check_settings_file(write)
    request = job.Request(cache, origin or [], file or [], limits)
    with console.progress(f"testing {cache}") as advance:
        answer = job.run(settings, request, say=console.log, on_progress=advance)
    site_page.write(answer, settings_to=write, page_to=out)
    if not console.shown_as_json(answer):
        _show_site_test(answer)
    if answer.failures:
        raise TargetUnavailable("; ".join(answer.failures))


def _show_site_test(answer: SiteTest) -> None:
    for line in answer.findings:
        console.sentence(line)
    processes = [row for row in answer.rates if not row.in_one_process]
    console.show(processes, title="Rates", columns=text.RATE_COLUMNS)
    if jobs := [row for row in answer.rates if row.in_one_process]:
        title = f"Settings of the client: a job of {jobs[0].clients} threads, whole files"
        console.show(jobs, title=title, columns=text.CLIENT_COLUMNS)
    if answer.outliers:
        console.show(answer.outliers, title="Reads that stood out")
    console.notes(answer.notes)
    console.line(f"\n{answer.settings}\n")
    console.sentence(answer.advice)
