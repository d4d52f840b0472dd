"""The command `outcomes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features.errors import InputError
from features.times import parse_as_of, parse_day
from jobs.cli import console
from jobs.cli.options import Conf, Json, TablesRoot
from jobs.settings.tree import Settings

_DAY_COLUMNS = (
    *("day", "hit_bytes", "missed_bytes", "prefetched_bytes", "lru_wan_bytes", "saved_wan_bytes"),
    "withheld",
)


def outcomes(
    cache: Annotated[str, typer.Option(help="name of a configured cache")],
    as_of: Annotated[str | None, typer.Option(help="account the plan of this moment")] = None,
    day: Annotated[
        str | None, typer.Option(help="account a UTC day's plans, and judge it against LRU")
    ] = None,
    since: Annotated[str | None, typer.Option("--from", help="first UTC day that is shown")] = None,
    until: Annotated[str | None, typer.Option("--to", help="last UTC day that is shown")] = None,
    out: Annotated[Path | None, typer.Option(help="also write what is shown as an HTML page")] = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Account what pushed files earned: of a plan (--as-of) or a day (--day); else show all so far."""
    from jobs import steps
    from jobs.outcomes import history as earnings

    settings = Settings.load(conf, tables=tables)
    if as_of is not None and day is not None:
        raise InputError("give either --as-of or --day, or neither to see what was accounted")
    if as_of is not None:
        console.show(steps.outcomes(settings, cache=cache, as_of_s=parse_as_of(as_of)), as_json=as_json)
    elif day is not None:
        console.show(earnings.of_day(settings, cache=cache, day_s=parse_day(day)), as_json=as_json)
    else:
        told = earnings.history(settings, cache=cache, since=since, until=until)
        if out is not None:
            earnings.write_page(told, cache=cache, out=out)
        if as_json:
            console.show(told, as_json=True)
            return
        console.show(told.plans, as_json=False, title="plans")
        console.show(told.models, as_json=False, title="model versions")
        console.show(told.days, as_json=False, title="days against LRU", columns=_DAY_COLUMNS)
