"""The studies: `report`, `worth-it`, `storage`, `workload` and `forecast`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.common.errors import InputError
from features.common.units import parse_bytes
from jobs.cli import console, options, parsing
from jobs.cli.options import AskedReads, Conf, file_to_write, folder_to_fill
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings

_MOST_DATASETS = 5  # that the screen shows, the largest; --json has all


def report(
    settings: Settings,
    reads: AskedReads,
    out: Annotated[Path, "the HTML file to write", file_to_write] = Path("report.html"),
    capacity: Annotated[str, "capacity of the studied cache, for example 50TB"] = "",
    capacity_fraction: Annotated[
        str, "the same as a fraction of the bytes of all files read, for example 0.05"
    ] = "",
    watermarks: Annotated[str, "low and high; defaults to [replay] watermarks"] = "",
) -> None:
    """Write one HTML page: the newest results, or the study of a trace.

    The newest replay, training, plan and push of the site; with --trace the caching study of that trace
    from --from on.
    """
    file = reads.file()
    if file is None:
        if any((capacity, capacity_fraction, watermarks, reads.only, reads.since, reads.until)):
            raise InputError("options that describe a study need a trace; give --trace")
        from jobs.operator.site_report import build

        console.show(build.run(settings, out=out))
        return
    if capacity and capacity_fraction:
        raise InputError("give either --capacity or --capacity-fraction")
    from jobs.studies.simulate import study

    capacity_bytes = parse_bytes(capacity) if capacity else None
    fraction = parsing.share(capacity_fraction) if capacity_fraction else None
    marks, since_s = parsing.watermarks(watermarks) if watermarks else None, parsing.day(reads.since)
    with console.progress("study") as advance:
        advance(0, 1, "reading")
        answer = study.write_study(
            file.load(keep=study.DETAILS, since_s=since_s),
            settings,
            what=file.what,
            capacity_bytes=capacity_bytes,
            capacity_fraction=fraction,
            watermarks=marks,
            out=out,
            on_progress=advance,
        )
    console.show(answer)


def worth_it(
    settings: Settings,
    reads: AskedReads,
    capacity: Annotated[str, "capacity of the cache in question, for example 200TB"],
    more: Annotated[float, typer.Option(min=1, help="more disk is so many times the capacity")] = 2,
    round_trip_ms: Annotated[
        float | None, typer.Option(min=0, help="to the origins; without it, no CPU hours")
    ] = None,
    price_wan: Annotated[float | None, typer.Option(min=0, help="money per TB of WAN traffic")] = None,
    price_core_hour: Annotated[float | None, typer.Option(min=0, help="money per core hour")] = None,
    price_disk: Annotated[float | None, typer.Option(min=0, help="money per TB of disk and year")] = None,
    price_steward: Annotated[
        float | None, typer.Option(min=0, help="money per year to run a steward")
    ] = None,
    out: options.OutPage = None,
) -> None:
    """Say whether a steward, or more disk, is worth it for a cache.

    What LRU, a steward and more disk save at this capacity, with bounds; CPU hours and money only by figures
    that you give. A steward learns from the days before --from, by default from the first half.
    """
    from jobs.studies.simulate import worth as job

    facts = job.SiteFacts(round_trip_ms, price_wan, price_core_hour, price_disk, price_steward)
    accesses = reads.accesses()
    with console.progress("worth-it") as advance:
        answer = job.run(
            settings,
            accesses,
            facts,
            capacity_bytes=parse_bytes(capacity),
            more=more,
            on_progress=advance,
        )
    if out is not None:
        job.write(answer, out, what=accesses.what)
    if console.shown_as_json(answer):
        return
    console.notes(answer.notes)
    console.sentences([answer.verdict, *answer.findings])
    console.show(answer.options, title="per day", columns=text.WORTH_COLUMNS)
    console.show(answer.assumptions, title="assumed; change it with")


def storage(
    settings: Settings,
    reads: AskedReads,
    capacity: Annotated[
        str,
        "capacities of the cache, for example 100TB,175TB; the verdict is of the first",
    ],
    rse: Annotated[
        list[str] | None,
        "pattern of the site's RSEs, for example 'PIC*'; may be repeated; defaults to `storage` of "
        "the caches, with --trace to the trace's own files",
    ] = None,
    network: Annotated[str, "most WAN traffic per second in the busiest hour, for example 1.2GB"] = "",
    keep_ruled: Annotated[bool, "propose only replicas that no rule keeps"] = False,
    node_disk: Annotated[str, "disk of a cache node"] = "96TB",
    node_network: Annotated[str, "network of a cache node, per second; defaults to [serve] cache_read"] = "",
    out: options.Out = None,
) -> None:
    """Say how much of a site's storage a cache replaces.

    Which replicas could be dropped and served by a cache, with the WAN traffic that it takes, the disk that
    it saves, and its nodes. The last replica on disk is never proposed, one with a rule is named as such.
    """
    from jobs.studies.simulate import storage as job

    request = job.StorageRequest(
        capacities=parsing.sizes(capacity),
        network_bytes_s=parse_bytes(network) if network else None,
        node_disk_bytes=parse_bytes(node_disk),
        node_bytes_s=parse_bytes(node_network) if node_network else settings.serve.cache_read,
        keep_ruled=keep_ruled,
    )
    with console.progress("storage") as advance:
        answer = job.run(settings, reads.accesses(), request, rses=rse or [], on_progress=advance)
    job.export_storage(answer, out, title="Storage against cache")
    if console.shown_as_json(answer):
        return
    console.notes(answer.notes)
    console.sentences([answer.verdict, *answer.findings])
    console.show(answer.points, title="by capacity", columns=text.STORAGE_COLUMNS)
    console.show(answer.stored, title="stored, by what keeps it")
    largest = sorted(answer.datasets, key=lambda dataset: -dataset.stored_bytes)[:_MOST_DATASETS]
    console.show(largest, title=f"largest of {len(answer.datasets)} datasets that go")


def workload(
    out: Annotated[Path, "folder for accesses.parquet and files.parquet, or the raw files", folder_to_fill],
    scenario: Annotated[
        str,
        "demo, mwt2, prague, pic, socal, site, archive, another in conf/workloads, or a TOML file",
    ] = "demo",
    start: Annotated[str | None, "first UTC day; defaults to the scenario's"] = None,
    seed: Annotated[int, "the same seed gives the same files"] = 1,
    days: Annotated[int | None, "days to generate; defaults to the scenario's"] = None,
    accesses: Annotated[int | None, "scale the region to about this many accesses"] = None,
    scale: Annotated[float | None, "multiply accesses and files"] = None,
    raw: Annotated[bool, "write Rucio traces and a listing, as JSON lines"] = False,
    conf: Conf = None,
    tables: Annotated[str | None, "write raw files and pull them into these tables"] = None,
) -> None:
    """Generate the accesses and files catalogue of a region.

    The shipped scenarios are calibrated to published figures; site and archive have the habits of users.
    """
    from jobs.studies.simulate import workload as job

    with console.progress("workload") as advance:
        answer = job.run(
            options.load(conf, tables=tables),
            scenario=scenario,
            conf=conf,
            start_s=parsing.day(start),
            seed=seed,
            days=days,
            accesses=accesses,
            scale=scale,
            out=out,
            raw=raw,
            pull_too=tables is not None,
            on_progress=advance,
        )
    console.show(answer)


def forecast(
    series: Annotated[
        Path, typer.Option(help="CSV: dataset,week,accesses or date,dataset,n_accesses", exists=True)
    ],
    as_of: Annotated[str, "last unit that is known: a week number, or a date"],
    horizons: Annotated[str, "how many units ahead, for example 1,4,13,26"],
    out: Annotated[
        Path, "CSV to write, with dataset, horizon, probability, expected_accesses", file_to_write
    ],
    cuts: Annotated[
        str | None,
        "judge forecasts made at these units instead, for example 52-77; out: a row each",
    ] = None,
) -> None:
    """Forecast a plain popularity series.

    For each dataset and horizon: how likely it is read again, and how often.
    """
    ahead, judged = parsing.counts(horizons), None if cuts is None else parsing.spans(cuts)
    from jobs.loop.train import forecast as job

    with console.progress("forecast"):
        if judged is None:
            answer = job.run(series=series, as_of=as_of, horizons=ahead, out=out)
        else:
            quality = job.judge(series=series, as_of=as_of, horizons=ahead, cuts=judged, out=out)
    if judged is None:
        console.show_warning(answer)
    else:
        console.show(quality, columns=text.FORECAST_COLUMNS)
