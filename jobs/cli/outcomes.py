"""The command `outcomes`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.errors import InputError
from features.times import day_label, parse_as_of, parse_day
from jobs import text
from jobs.cli import console, options
from jobs.cli.options import Cache, Conf, Json, TablesRoot

if TYPE_CHECKING:
    from jobs.outcomes.history import History

_DAY_COLUMNS = ("day", "hit_bytes", "lru_wan_bytes", "saved_wan_bytes", "withheld")
_STEWARD_COLUMNS = ("day", "orders", "wan_bytes", "lru_wan_bytes", "saved_wan_bytes")
_PLAN_COLUMNS = ("as_of", *text.OUTCOME_COLUMNS)
_MODEL_COLUMNS = ("model_version", *text.OUTCOME_COLUMNS)


def outcomes(
    cache: Cache,
    as_of: Annotated[str | None, typer.Option(help="account the plan of this decision time")] = None,
    day: Annotated[
        str | None, typer.Option(help="account the plans of a UTC day, and judge the day against LRU")
    ] = None,
    since: Annotated[str | None, typer.Option("--from", help="first UTC day that is shown")] = None,
    until: Annotated[str | None, typer.Option("--to", help="last UTC day that is shown")] = None,
    out: Annotated[Path | None, typer.Option(help="also write what is shown as an HTML page")] = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Account what pushed files earned.

    Of one plan (--as-of) or of a day's plans (--day); without either, shows what was accounted so far.
    """
    from jobs.outcomes import history, items

    settings = options.load(conf, tables=tables)
    if as_of is not None and day is not None:
        raise InputError("give either --as-of or --day, or neither to see what was accounted")
    if as_of is not None:
        console.show(items.run(settings, cache=cache, as_of_s=parse_as_of(as_of)), as_json=as_json)
    elif day is not None:
        console.show(history.of_day(settings, cache=cache, day_s=parse_day(day)), as_json=as_json)
    else:
        found = history.history(settings, cache=cache, since=_day(since), until=_day(until))
        if out is not None:
            history.write_page(found, cache=cache, out=out)
        if as_json:
            console.show(found, as_json=True)
            return
        _show(found, cache)


def _day(text: str | None) -> str | None:
    return None if text is None else day_label(parse_day(text))


def _show(found: History, cache: str) -> None:
    if found.plans:
        console.show(found.plans, as_json=False, title="plans", columns=_PLAN_COLUMNS)
        console.show(found.models, as_json=False, title="model versions", columns=_MODEL_COLUMNS)
    else:
        console.line("plans: none of them completed an item; see `cachecast push --status`")
    if found.steward:
        title = "days of the steward, by its own count"
        console.show(found.steward, as_json=False, title=title, columns=_STEWARD_COLUMNS)
    if found.days:
        console.show(found.days, as_json=False, title="days against LRU", columns=_DAY_COLUMNS)
    else:
        console.line(f"days against LRU: none judged; run `cachecast outcomes --cache {cache} --day …`")
