"""The command `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features.times import parse_day
from features.units import parse_duration
from jobs import text
from jobs.cli import console, options, parsing

AUTO = "auto"
FRACTIONS = "0.05,0.1,0.2"


def evaluate(
    since: Annotated[
        str, typer.Option("--from", help="first UTC day that counts; earlier days train and warm")
    ],
    accesses: Annotated[
        Path | None,
        typer.Option(
            help="Parquet file of accesses, with files.parquet beside it; defaults to the site's",
            exists=True,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="instead of the whole service: learn an order of eviction from this trace's days before "
            "--from, and compare it with other policies",
            exists=True,
        ),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(
            help="the trace's columns, for example time=t,item=id,size=size,dataset=ds,user=who,task=job"
        ),
    ] = "",
    time_unit: options.TimeUnit = "s",
    kind: options.Kind = "auto",
    sort: options.Sort = False,
    site: options.Site = None,
    until: options.Until = None,
    cycle: Annotated[
        str,
        typer.Option(help="time between plans, for example 1h; auto: a tenth of each capacity's LRU age"),
    ] = AUTO,
    capacity_fraction: Annotated[
        str, typer.Option(help="capacities as fractions of the bytes of all files read")
    ] = FRACTIONS,
    out: options.Out = None,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Replay the whole service over past days, against its rivals.

    Features, trainings, predictions and plans are made as the service would have made them then. With
    --trace, a learned order of eviction is compared with other policies on any trace; nothing is prefetched.
    """
    from jobs.evaluate import ready
    from jobs.report import export

    from_s, to_s = parse_day(since), None if until is None else parse_day(until)
    fractions = parsing.shares(capacity_fraction)
    export.prepare(out)
    roles = parsing.columns(columns)
    beside = parsing.beside(roles)
    file = parsing.trace_file(trace, roles, time_unit, kind, sort, site, until)
    with console.progress("evaluation", quiet=as_json) as advance:
        if file is not None:
            from jobs.evaluate import trace as of_trace

            answer = of_trace.run(file, beside, from_s=from_s, fractions=fractions, on_progress=advance)
        else:
            settings = options.load(conf, tables=tables)
            ready.to_evaluate(settings, accesses=accesses, from_s=from_s, to_s=to_s)
            from jobs.evaluate import evaluate as job

            answer = job.run(
                settings,
                accesses=accesses,
                from_s=from_s,
                to_s=to_s,
                cycle_s=None if cycle == AUTO else parse_duration(cycle),
                fractions=fractions,
                on_progress=advance,
            )
    title = (
        f"Evaluation from {answer.first_day} to {answer.last_day}, {answer.model_version or 'no candidate'}"
    )
    export.export_evaluation(answer, out, title=title)
    if as_json:
        console.show(answer, as_json=True)
        return
    console.show(answer.rows, as_json=False, title=title, columns=text.EVALUATION_COLUMNS)
    console.notes(answer.notes)
