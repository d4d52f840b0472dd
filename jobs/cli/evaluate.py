"""The command `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features.times import parse_day
from features.units import parse_duration
from jobs.cli import console, options
from jobs.cli import parsing as arguments
from jobs.settings.tree import Settings

AUTO = "auto"
FRACTIONS = "0.05,0.1,0.2"


def evaluate(
    since: Annotated[
        str, typer.Option("--from", help="first UTC day that counts; what is before teaches and warms")
    ],
    accesses: Annotated[
        Path | None,
        typer.Option(
            help="Parquet file of accesses, with files.parquet beside it; else the site's", exists=True
        ),
    ] = None,
    until: options.Until = None,
    cycle: Annotated[
        str, typer.Option(help="between plans, as 1h or 1d; auto: a tenth of the LRU age of each capacity")
    ] = AUTO,
    capacity_fraction: Annotated[
        str, typer.Option(help="capacities as shares of the bytes of all files read")
    ] = FRACTIONS,
    out: options.Out = None,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Walk through past days as the service would, and replay its plans against LRU and its rivals."""
    from jobs import model_steps
    from jobs.report.export import export_evaluation, prepare

    prepare(out)
    with console.progress("evaluation", quiet=as_json) as advance:
        answer = model_steps.evaluate(
            Settings.load(conf, tables=tables),
            accesses=accesses,
            from_s=parse_day(since),
            to_s=None if until is None else parse_day(until),
            cycle_s=None if cycle == AUTO else parse_duration(cycle),
            fractions=arguments.shares(capacity_fraction),
            on_progress=advance,
        )
    whose = answer.model_version or "no candidate"
    title = f"Walk from {answer.first_day} to {answer.last_day}, for {whose}"
    export_evaluation(answer, out, title=title)
    if as_json:
        console.show(answer, as_json=True)
        return
    console.show(answer.rows, as_json=False, title=title, columns=console.EVALUATION_COLUMNS)
    for note in answer.notes:
        console.err.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
