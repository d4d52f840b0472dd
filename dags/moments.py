"""The decision time of a run, and the cron of a cycle.

The decision time is the run's partition key. Scheduled runs have one, runs started by an asset inherit it,
and manual runs are given one. No run needs a data interval, and none reads the clock.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Protocol

from features.common.errors import ConfigError, InputError
from features.common.times import DAY_S, HOUR_S, as_of_label, day_label, parse_as_of, parse_day
from jobs.ground.settings.airflow import scheduling

KEY_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""Format of partition keys, the same as that of an as_of."""

AS_OF = "{{ as_of(dag_run, params) }}"
DAY = "{{ day(as_of(dag_run, params)) }}"
"""Templates of a run's decision time, and of its UTC day."""

LAST_DAY = "{{ day(ended(as_of(dag_run, params))) }}"
LAST_HOUR = "{{ hour(ended(as_of(dag_run, params))) }}"
"""Templates of the last UTC hour that has ended by a run's decision time, for example 03, and of its day."""

CURRENT = "{{ if_current(as_of(dag_run, params), ti.start_date) }}"
"""Template of a run's decision time; empty if its cycle is over."""


class Run(Protocol):
    """The attributes of an Airflow run that are needed here."""

    @property
    def partition_key(self) -> str | None: ...
    @property
    def run_after(self) -> dt.datetime: ...


def as_of(dag_run: Run, params: Mapping[str, object]) -> str:
    """The decision time of a run: its parameter, its partition key, or the start of the current cycle."""
    given = params.get("as_of") or dag_run.partition_key
    if given:
        return str(given)
    at_s, cycle_s = int(dag_run.run_after.timestamp()), scheduling().cycle_s
    return as_of_label(at_s - at_s % cycle_s)


def day(moment: str, before_days: int = 0) -> str:
    """The UTC day of `moment`, or the one `before_days` earlier."""
    return day_label(parse_as_of(moment) - before_days * DAY_S)


def hour(moment: str) -> str:
    """The UTC hour of `moment`, in two digits."""
    return as_of_label(parse_as_of(moment))[11:13]


def ended(moment: str) -> str:
    """The last second of the newest UTC hour that has ended by `moment`."""
    at_s = parse_as_of(moment)
    return as_of_label(at_s - at_s % HOUR_S - 1)


def earlier(moment: str, before_days: int) -> str:
    """The time `before_days` before `moment`."""
    return as_of_label(parse_as_of(moment) - before_days * DAY_S)


def if_current(moment: str, now: dt.datetime) -> str:
    """`moment` during its cycle and the next one; later an empty text, as current values do not apply."""
    return moment if now.timestamp() - parse_as_of(moment) < 2 * scheduling().cycle_s else ""


def days(first: str, last: str) -> list[str]:
    """The UTC days from `first` to `last`, in order, at least one. Raises InputError."""
    days_between = [day_label(at) for at in range(parse_day(first), parse_day(last) + 1, DAY_S)]
    if not days_between:
        raise InputError(f"the last day {last} is before the first, {first}; exchange them")
    return days_between


def cron(cycle_s: int) -> str:
    """The cron (UTC) that fires at the start of every cycle. Raises ConfigError if there is none."""
    minutes, hours = cycle_s // 60, cycle_s // 3600
    if cycle_s % 60 == 0 and minutes <= 60 and 60 % minutes == 0:
        return "0 * * * *" if minutes == 60 else f"*/{minutes} * * * *"
    if cycle_s % 3600 == 0 and hours <= 24 and 24 % hours == 0:
        return "0 0 * * *" if hours == 24 else f"0 */{hours} * * *"
    raise ConfigError(
        "features.cycle",
        f"Airflow's DAGs start with every cycle, and no cron has a period of {cycle_s} s; "
        "choose minutes that divide an hour, or hours that divide a day",
    )
