"""The moment that a run is about, and crons that give runs at every cycle.

A run's moment is its partition key: scheduled runs have one, runs that an asset starts inherit it, and a run
by hand is given one. So no run needs a data interval, and none asks the clock for what it computes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Protocol

from features.errors import ConfigError
from features.times import DAY_S, as_of_label, day_label, parse_as_of, parse_day
from jobs.settings.airflow import scheduling

KEY_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""Of partition keys: an as_of."""

AS_OF = "{{ as_of(dag_run, params) }}"
DAY = "{{ day(as_of(dag_run, params)) }}"
"""Templates of a run's moment, and of its UTC day."""

CURRENT = "{{ if_current(as_of(dag_run, params), ti.start_date) }}"
"""Template of a run's moment, empty where that is past."""


class Run(Protocol):
    """What a run tells of itself."""

    @property
    def partition_key(self) -> str | None: ...
    @property
    def run_after(self) -> dt.datetime: ...


def as_of(dag_run: Run, params: Mapping[str, object]) -> str:
    """The moment of a run: the one asked for, else its partition's, else the cycle that has begun."""
    asked = params.get("as_of") or dag_run.partition_key
    if asked:
        return str(asked)
    at_s, cycle_s = int(dag_run.run_after.timestamp()), scheduling().cycle_s
    return as_of_label(at_s - at_s % cycle_s)


def day(moment: str, before_days: int = 0) -> str:
    """The UTC day of a moment, or the one so many days before it."""
    return day_label(parse_as_of(moment) - before_days * DAY_S)


def earlier(moment: str, before_days: int) -> str:
    """The moment so many days before."""
    return as_of_label(parse_as_of(moment) - before_days * DAY_S)


def if_current(moment: str, now: dt.datetime) -> str:
    """The moment while its cycle, or the next one, lasts; then nothing: what is so now says nothing of it."""
    return moment if now.timestamp() - parse_as_of(moment) < 2 * scheduling().cycle_s else ""


def days(first: str, last: str) -> list[str]:
    """The UTC days from `first` to `last`, in order. Raises InputError."""
    return [day_label(at) for at in range(parse_day(first), parse_day(last) + 1, DAY_S)]


def cron(cycle_s: int) -> str:
    """The cron (UTC) that begins with every cycle. Raises ConfigError where no cron can."""
    minutes, hours = cycle_s // 60, cycle_s // 3600
    if cycle_s % 60 == 0 and minutes <= 60 and 60 % minutes == 0:
        return "0 * * * *" if minutes == 60 else f"*/{minutes} * * * *"
    if cycle_s % 3600 == 0 and hours <= 24 and 24 % hours == 0:
        return "0 0 * * *" if hours == 24 else f"0 */{hours} * * *"
    raise ConfigError(
        "features.cycle",
        f"Airflow's DAGs begin with every cycle, and no cron has one of {cycle_s} s; "
        "choose minutes that divide an hour, or hours that divide a day",
    )
