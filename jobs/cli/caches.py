"""The commands of caches and of known work.

They are `scan`, `collect`, `steward`, `caches`, `prefill`, `queue` and `never-cache`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from features.common.errors import InputError, without_login
from features.common.units import parse_bytes, parse_duration
from jobs.cli import console, options, parsing
from jobs.cli.options import Cache, Conf, Force, MaybeAsOf, file_to_write, folder_to_fill
from jobs.cli.plans import end_push

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobs.ground.settings.tree import Settings
    from prefetch.steward.figures import StewardFigures


def scan(
    settings: Settings,
    cache: Annotated[str, "name of the cache in its records"],
    namespace: Annotated[
        Path | None,
        "the cache's oss.localroot, with its .cinfo files; defaults to its settings",
    ] = None,
    space: Annotated[list[Path] | None, "a folder of oss.space that the namespace's links lead to"] = None,
    as_of: Annotated[str | None, "time of the inventory; defaults to now"] = None,
    force: Force = False,
) -> None:
    """Take an XCache's inventory and remembered reads on its host.

    The inventory goes into the table contents, the reads that cinfo files remember into accesses.
    """
    from jobs.loop.ingest import scan as job

    with console.progress(f"scanning {cache}"):
        answer = job.run(
            settings,
            namespace=namespace,
            spaces=space or [],
            cache=cache,
            as_of_s=parsing.moment(as_of),
            force=force,
        )
    console.show(answer)


def collect(
    out: Annotated[Path, "folder for the captures, made if it is not there", folder_to_fill],
    port: Annotated[int | None, "UDP port to listen on; 0 takes any free one"] = None,
    host: Annotated[str, "address to listen on; 0.0.0.0 for caches elsewhere"] = "127.0.0.1",
    roll_size: Annotated[str, "finish a file at this size"] = "64MB",
    roll_every: Annotated[str, "finish a file this long after its first datagram"] = "1h",
    log_every: Annotated[str, "time between two lines of counts"] = "1m",
    broker: Annotated[
        str | None,
        "follow stomp://HOST:PORT too, or stomp+ssl://; defaults to [collect] broker",
    ] = None,
    subscribe: Annotated[
        list[str] | None, "what to follow there, for example /topic/NAME; may be repeated"
    ] = None,
    conf: Conf = None,
) -> None:
    """Keep what caches report by UDP, and what shovelers and collectors publish at a broker.

    Up to [collect] quota. Runs until it is stopped; run it as a service.
    """
    from jobs.loop.ingest import collect as job
    from jobs.loop.ingest.bus import Collecting
    from jobs.loop.ingest.queues.place import Place
    from jobs.operator.operate import prometheus

    def write_counts(service: str, counts: Mapping[str, int]) -> None:
        labels = {"port": str(port)} if service == "collect" else {"broker": without_login(settings.broker)}
        prometheus.leave_counts(metrics, service, labels, counts, console.warn)

    values = {"COLLECT__BROKER": broker, "COLLECT__SUBSCRIBE": subscribe}
    site = options.load(conf, values=values)
    # Without names of sites it is not known what concerns them.
    place = Place.of(site, 0, None) if site.queue.sites else Place(0)
    settings, metrics = site.collect, site.metrics.folder
    how = Collecting(
        settings,
        parse_bytes(roll_size),
        parse_duration(roll_every),
        parse_duration(log_every),
        log=console.log,
        now_s=time.time,
        figures=write_counts,
        concerns=place.concerns,
    )
    answer = job.run(how, host=host, port=port, out=out)
    if console.is_json:
        console.show(answer)


def steward(
    settings: Settings,
    cache: Cache,
    force: Annotated[bool, "evict what is above the high watermark now, however much it is"] = False,
) -> None:
    """Keep a cache below its high watermark by evicting in our order.

    Runs until it is stopped; run it as a service on the cache's host. Without it the cache is plain LRU.
    """
    from jobs.loop.steward import steward as job
    from jobs.operator.operate import prometheus

    folder = settings.metrics.folder

    def write_figures(figures: StewardFigures) -> None:
        prometheus.leave(folder, f"steward-{cache}", prometheus.of_steward(figures), console.warn)

    answer = job.run(settings, cache=cache, log=console.log, figures=write_figures, force=force)
    prometheus.leave(folder, f"steward-{cache}", [], console.warn)
    if console.is_json and answer is not None:
        console.show(answer)


def caches(
    settings: Settings,
    pushed_at: Annotated[str | None, "only caches to which the plan of this decision time was pushed"] = None,
    unjudged: Annotated[
        str | None,
        "only caches to which plans of this UTC day were pushed, without a verdict on it; none unless "
        "[airflow] pull has their own records",
    ] = None,
    unjudged_to: Annotated[
        str | None, "with --unjudged: and of the days until this one, a line per day"
    ] = None,
    with_rse: Annotated[bool, "only caches with an RSE in Rucio"] = False,
) -> None:
    """List the configured caches.

    Airflow maps its tasks over them.
    """
    if unjudged_to is not None and unjudged is None:
        raise InputError("--unjudged-to ends the days that --unjudged begins; give it too")
    from jobs.operator.operate import due as job

    cache_filter = job.CacheFilter(
        pushed_at_s=parsing.moment(pushed_at),
        unjudged_s=parsing.day(unjudged),
        unjudged_to_s=parsing.day(unjudged_to),
        with_rse=with_rse,
    )
    console.show(job.listed(settings, cache_filter))


def prefill(
    settings: Settings,
    cache: Cache,
    dataset: Annotated[list[str] | None, "did of a dataset that the task will read; may be repeated"] = None,
    files: Annotated[
        Path | None,
        # Not looked at by its parser, which a file system that hangs would hold up.
        typer.Option(
            parser=Path, metavar="PATH", help="a list of the files it will read: a did or a path per line"
        ),
    ] = None,
    described: Annotated[
        Path | None,
        typer.Option(
            parser=Path, metavar="PATH", help="a job's description that names them: an ad, xRSL or ADL"
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="how many jobs will read them")] = 1,
    start: Annotated[str | None, "when they are expected to start"] = None,
    as_of: MaybeAsOf = None,
    dry_run: Annotated[bool, "show what would be fetched, and touch nothing"] = False,
) -> None:
    """Fetch what a task will read into a cache before it is submitted.

    The next plans hold these files until the task has read them.
    """
    from jobs.loop.push import prefill as job

    listed = [] if files is None else job.listed(files)
    as_of_s = parsing.come_or_now(settings, as_of)
    request = job.PrefillRequest(dataset or [], listed, jobs, parsing.moment(start))
    if described is not None:
        request = job.with_described(request, described, as_of_s)
    with console.progress(f"prefilling {cache}") as advance:
        if as_of is None and not dry_run:
            answer = job.run_now(settings, request, cache=cache, from_s=as_of_s, on_progress=advance)
        else:
            answer = job.run(
                settings, request, cache=cache, as_of_s=as_of_s, dry_run=dry_run, on_progress=advance
            )
    console.show(answer)
    if answer.pushed is not None:
        end_push(cache, answer.pushed)


def queue(
    settings: Settings,
    name: Annotated[str, "name of the queue, for example htcondor"],
    input: Annotated[
        str,
        "its jobs: a JSON, ClassAd, CSV, xRSL or ADL file, a folder, a URL that answers JSON, "
        "condor://POOL/SCHEDD, or rucio_server",
    ],
    site: Annotated[str | None, "site whose caches its jobs read through, where entries name none"] = None,
    kind: Annotated[
        Literal["auto", "entries", "htcondor", "arc", "panda", "rucio", "reqmgr"],
        "what it is; auto: by its fields",
    ] = "auto",
    as_of: MaybeAsOf = None,
) -> None:
    """Take from a batch system what its queued jobs will read.

    Plans from then on take these reads into account.
    """
    from jobs.loop.ingest import queue as job

    as_of_s = parsing.come_or_now(settings, as_of)
    console.show(job.run(settings, name=name, source=input, as_of_s=as_of_s, site=site, kind=kind))


def never_cache(
    settings: Settings,
    cache: Cache,
    out: Annotated[Path, "the file to write, where the cache's server reads it", file_to_write],
) -> None:
    """Write the rules of what never to cache as XRootD's blacklist.

    A cache reads the file when it starts.
    """
    from jobs.loop.plan import plan as job

    console.show(job.never_cache(settings, cache=cache, out=out))
