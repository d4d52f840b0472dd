"""The command that writes pages: `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features.errors import InputError
from features.times import DAY_S, parse_day
from features.units import parse_bytes
from jobs.cli import console, options, parsing


def report(
    out: Annotated[Path, typer.Option(help="the HTML file to write")] = Path("report.html"),
    trace: Annotated[
        Path | None, typer.Option(help="study this trace: accesses table, Parquet, CSV, libCacheSim's")
    ] = None,
    capacity: Annotated[str, typer.Option(help="capacity of the studied cache, for example 50TB")] = "",
    capacity_fraction: Annotated[
        str, typer.Option(help="the same as a fraction of the bytes of all files read, for example 0.05")
    ] = "",
    watermarks: Annotated[str, typer.Option(help="low and high; defaults to [replay] watermarks")] = "",
    columns: options.Columns = "",
    time_unit: options.TimeUnit = "s",
    kind: options.Kind = "auto",
    sort: options.Sort = False,
    site: options.Site = None,
    since: Annotated[
        str | None, typer.Option("--from", help="first UTC day of the study; earlier ones are left out")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="last UTC day of the study")] = None,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Write one HTML page: the newest results, or the study of a trace.

    The newest replay, training, plan and push of the site; with --trace the caching study of that trace.
    """
    settings = options.load(conf, tables=tables)
    if trace is None:
        if any((capacity, capacity_fraction, watermarks, columns, sort, site, since, until)):
            raise InputError("options that describe a study need a trace; give --trace")
        from jobs.report import build

        console.show(build.run(settings, out=out), as_json=as_json)
        return
    if capacity and capacity_fraction:
        raise InputError("give either --capacity or --capacity-fraction")
    from jobs.simulate import study
    from jobs.store import traces

    end_s = None if until is None else parse_day(until) + DAY_S
    file = traces.TraceFile(trace, parsing.columns(columns), time_unit, kind, sort, site, end_s)
    with console.progress("study", quiet=as_json) as advance:
        answer = study.run(
            settings,
            file,
            since_s=None if since is None else parse_day(since),
            capacity_bytes=parse_bytes(capacity) if capacity else None,
            capacity_fraction=parsing.share(capacity_fraction) if capacity_fraction else None,
            watermarks=parsing.watermarks(watermarks) if watermarks else None,
            out=out,
            on_progress=advance,
        )
    console.show(answer, as_json=as_json)
