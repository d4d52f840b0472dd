"""The command `workload`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features.times import parse_day
from jobs.cli import console, options
from jobs.cli.options import Conf, Json


def workload(
    out: Annotated[
        Path, typer.Option(help="folder for accesses.parquet and files.parquet, or the raw files")
    ],
    scenario: Annotated[
        str,
        typer.Option(
            help="demo, mwt2, prague, pic, socal, site, archive, another in conf/workloads, or a TOML file"
        ),
    ] = "demo",
    start: Annotated[str | None, typer.Option(help="first UTC day; defaults to the scenario's")] = None,
    seed: Annotated[int, typer.Option(help="the same seed gives the same files")] = 1,
    days: Annotated[int | None, typer.Option(help="days to generate; defaults to the scenario's")] = None,
    accesses: Annotated[int | None, typer.Option(help="scale the region to about this many accesses")] = None,
    scale: Annotated[float | None, typer.Option(help="multiply accesses and files")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="write Rucio traces and a listing, as JSON lines")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="show published figures beside the generated ones")
    ] = False,
    conf: Conf = None,
    tables: Annotated[
        str | None, typer.Option("--tables", help="write raw files and pull them into these tables")
    ] = None,
    as_json: Json = False,
) -> None:
    """Generate the accesses and files catalogue of a region.

    The shipped scenarios are calibrated to published figures; site and archive have the habits of users.
    """
    from jobs.simulate import workload as job

    with console.progress("workload", quiet=as_json) as advance:
        answer = job.run(
            options.load(conf, tables=tables),
            scenario=scenario,
            conf=conf,
            start_s=None if start is None else parse_day(start),
            seed=seed,
            days=days,
            accesses=accesses,
            scale=scale,
            out=out,
            raw=raw,
            report=report,
            pull_too=tables is not None,
            on_progress=advance,
        )
    if as_json:
        console.show(answer, as_json=True)
        return
    console.show(job.written(answer), as_json=False)
    if report:
        rows = job.calibration_rows(answer.calibration)
        console.show(rows, as_json=False, title="published and produced")
