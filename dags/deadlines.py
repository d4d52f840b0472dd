"""Deadlines counted from a run's decision time, so that one deadline spans the chain from pull to push.

Airflow's scheduler computes a deadline when it makes a run, and finds the class for it by the plugin below,
which the installation of cachecast registers (entry point `airflow.plugins`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk.definitions.deadline import BaseDeadlineReference

from features.common.errors import InputError
from features.common.times import parse_as_of

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


@dataclass(eq=False)
class DecisionTime(BaseDeadlineReference):
    """The decision time of a run: every DAG of its chain is due `within_s` after it.

    A run that is queued later than that, for example one that repeats an old decision time, is due `within_s`
    after it was queued. So is a run of a future decision time, or without one.
    """

    within_s: int = 0
    required_kwargs: ClassVar[set[str]] = {"dag_id", "run_id"}

    def serialize_reference(self) -> dict[str, Any]:
        """What the scheduler makes it again from."""
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
    """What Airflow's processes load of cachecast."""

    name = "cachecast"
    deadline_references = [DecisionTime]  # noqa: RUF012  Airflow's own form
