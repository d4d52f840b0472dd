"""The command `forecast`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jobs import text
from jobs.cli import console
from jobs.cli.options import Json
from jobs.cli.parsing import counts, spans


def forecast(
    series: Annotated[
        Path, typer.Option(help="CSV: dataset,week,accesses or date,dataset,n_accesses", exists=True)
    ],
    as_of: Annotated[str, typer.Option(help="last unit that is known: a week number, or a date")],
    horizons: Annotated[str, typer.Option(help="how many units ahead, for example 1,4,13,26")],
    out: Annotated[Path, typer.Option(help="CSV to write: dataset,horizon,probability,expected_accesses")],
    cuts: Annotated[
        str | None,
        typer.Option(help="judge forecasts made at these units instead, for example 52-77; out: a row each"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Forecast a plain popularity series.

    For each dataset and horizon: how likely it is read again, and how often.
    """
    ahead, judged = counts(horizons), None if cuts is None else spans(cuts)
    from jobs.train import forecast as job

    with console.progress("forecast", quiet=as_json):
        answer = (
            job.run(series=series, as_of=as_of, horizons=ahead, out=out)
            if judged is None
            else job.judge(series=series, as_of=as_of, horizons=ahead, cuts=judged, out=out)
        )
    console.show(answer, as_json=as_json, columns=text.FORECAST_COLUMNS)
