"""The decision time of a run, and the cron of a cycle.

The decision time is the run's partition key. Scheduled runs have one, runs started by an asset inherit it,
and manual runs are given one. No run needs a data interval, and none reads the clock.

Deadlines counted from a run's decision time, so that one deadline spans the chain from pull to push.

Airflow's scheduler computes a deadline when it makes a run, and finds the class for it by the plugin below,
which the installation of cachecast registers (entry point `airflow.plugins`).

A task that waits for a file or a folder (local, HDFS or S3) in Airflow's triggerer, without a worker.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperator
from airflow.sdk.definitions.deadline import BaseDeadlineReference
from airflow.sdk.exceptions import AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from features.common.errors import CachecastError, ConfigError, InputError
from features.common.times import DAY_S, HOUR_S, as_of_label, day_label, parse_as_of, parse_day
from jobs.ground.settings.sections import scheduling

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


KEY_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # format of partition keys, the same as that of an as_of
AS_OF = "{{ as_of(dag_run, params) }}"
DAY = "{{ day(as_of(dag_run, params)) }}"  # templates of a run's decision time, and of its UTC day
WHOLE_DAYS = {
    "from": "{{ day(as_of(dag_run, params), params.days) }}",
    "to": "{{ day(as_of(dag_run, params), 1) }}",
}
"""Options for the last `params.days` whole days."""

LAST_DAY = "{{ day(ended(as_of(dag_run, params))) }}"
LAST_HOUR = "{{ hour(ended(as_of(dag_run, params))) }}"
"""Templates of the last UTC hour that has ended by a run's decision time, for example 03, and of its day."""

CURRENT = "{{ if_current(as_of(dag_run, params), ti.start_date) }}"
"""Template of a run's decision time; empty if its cycle and the next one are over."""


class Run(Protocol):
    @property
    def partition_key(self) -> str | None: ...
    @property
    def run_after(self) -> dt.datetime: ...


def as_of(dag_run: Run, params: Mapping[str, object]) -> str:
    """The decision time of a run: its parameter, its partition key, or the start of the current cycle."""
    moment = params.get("as_of") or dag_run.partition_key
    if moment:
        return str(moment)
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


@dataclass(eq=False)
class DecisionTime(BaseDeadlineReference):
    """The decision time of a run: every DAG of its chain is due `within_s` after it.

    A run that is queued later than that, for example one that repeats an old decision time, is due `within_s`
    after it was queued. So is a run of a future decision time, or without one.
    """

    within_s: int = 0
    required_kwargs: ClassVar[set[str]] = {"dag_id", "run_id"}

    def serialize_reference(self) -> dict[str, Any]:
        return {**super().serialize_reference(), "within_s": self.within_s}

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> DecisionTime:
        """The inverse of `serialize_reference`."""
        return cls(int(reference_data["within_s"]))

    def _evaluate_with(self, *, session: Session, dag_id: str, run_id: str) -> dt.datetime | None:
        """The time from which the deadline counts; None, and no deadline, if there is no such run."""
        from airflow.models import DagRun  # noqa: PLC0415  no part of Airflow's database is loaded to parse a DAG
        from sqlalchemy import select  # noqa: PLC0415

        query = select(DagRun.partition_key, DagRun.queued_at).where(
            DagRun.dag_id == dag_id, DagRun.run_id == run_id
        )
        run = session.execute(query).one_or_none()
        if run is None or run.queued_at is None:
            return None
        return start(run.partition_key, run.queued_at, within_s=self.within_s)


def start(key: str | None, queued_at: dt.datetime, *, within_s: int) -> dt.datetime:
    """The time from which a run's deadline counts: its decision time, in the partition `key`, or `queued_at`.

    The decision time counts if the run was queued no later than `within_s` after it; a backfill counts from
    its queueing.
    """
    try:
        decision_at = dt.datetime.fromtimestamp(parse_as_of(key or ""), dt.UTC)
    except InputError:
        return queued_at
    within = dt.timedelta(seconds=within_s)
    return decision_at if decision_at <= queued_at < decision_at + within else queued_at


class CachecastPlugin(AirflowPlugin):
    name = "cachecast"
    deadline_references = [DecisionTime]  # noqa: RUF012  Airflow's own form


LOOK_EVERY_S = 10.0
_MARGIN_S = 300  # a busy triggerer may be so late
_log = logging.getLogger(__name__)


class Arrived(BaseOperator):
    """Ends when `path` is there; skipped if it is not there `within_s` after the start."""

    template_fields: Sequence[str] = ("path",)

    def __init__(self, *, path: str, within_s: int, **task: Any) -> None:
        super().__init__(**task)
        self.path, self.within_s = path, within_s

    def execute(self, context: Any) -> None:
        """Hand over to the triggerer at once: a look at a file system that hangs would keep the worker."""
        until_s = time.time() + self.within_s
        margin = dt.timedelta(seconds=self.within_s + _MARGIN_S)
        self.defer(trigger=PathTrigger(self.path, until_s), method_name="seen", timeout=margin)

    def seen(self, context: Any, event: bool) -> None:
        """Skip the task if `path` did not arrive; the tasks after it run in either case."""
        if not event:
            raise AirflowSkipException(f"{self.path} did not arrive within {self.within_s} s")


class PathTrigger(BaseTrigger):
    """Fires True when `path` is there, False at `until_s` seconds since 1970."""

    def __init__(self, path: str, until_s: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path, self.until_s = path, until_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "dags.moments.PathTrigger", {"path": self.path, "until_s": self.until_s}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every ten seconds, also at a file system that was unavailable."""
        while not (arrived := await self._look()) and time.time() < self.until_s:
            await asyncio.sleep(min(LOOK_EVERY_S, max(0.1, self.until_s - time.time())))
        yield TriggerEvent(arrived)  # type: ignore[no-untyped-call]

    async def _look(self) -> bool:
        """Whether `path` is there; False if its file system has not answered when the time is over.

        A look that hangs leaves its thread behind; the few threads of asyncio are shared by all triggers.
        """
        loop, answer = asyncio.get_running_loop(), asyncio.Future[bool]()

        def reply(is_seen: bool) -> None:
            if not answer.done():
                answer.set_result(is_seen)

        def look() -> None:
            is_seen = is_there(self.path)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(reply, is_seen)

        threading.Thread(target=look, daemon=True).start()
        try:
            return await asyncio.wait_for(answer, max(LOOK_EVERY_S, self.until_s - time.time()))
        except TimeoutError:
            _log.warning("cannot look for %s: its file system does not answer", self.path)
            return False


def is_there(path: str) -> bool:
    """Whether a file or a folder is there; False if its file system cannot say."""
    from jobs.ground.store.filesystems import store_at  # noqa: PLC0415  no job is imported to parse a DAG

    try:
        return store_at(path).exists()
    except (CachecastError, OSError) as error:
        _log.warning("cannot look for %s: %s", path, error)
        return False
