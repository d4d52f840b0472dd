"""The settings of the DAGs: the table `[airflow]`, read without those of any other room."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import pydantic

from features.common.units import parse_duration
from jobs.ground.settings.layers import layered
from jobs.ground.settings.sources import SERVER, SourceName
from jobs.ground.settings.values import HttpUrl, Name, Seconds, SecretHttpUrl, Section, checked


class QueueInput(Section):
    """A queue of jobs. `input`: where its entries are read; `site`: of entries that name no site."""

    input: str = pydantic.Field(min_length=1)
    site: str = ""


class AirflowSettings(Section):
    """Schedules, retries and alerts of the DAGs; conf/base.toml explains the keys."""

    url: HttpUrl
    pull: dict[SourceName, str]
    wait: dict[str, str]
    wait_for: Seconds
    queues: dict[Name, QueueInput]
    train: str = pydantic.Field(min_length=1)
    report: str = pydantic.Field(min_length=1)
    reports: str = pydantic.Field(min_length=1)
    spark: str
    spark_pod: str
    retries: int = pydantic.Field(ge=1)
    retry_delay: Seconds
    max_retry_delay: Seconds
    deadline: Literal["auto"] | Seconds
    long_deadline: Seconds
    webhook: SecretHttpUrl

    @pydantic.model_validator(mode="after")
    def _waits_for_files(self) -> AirflowSettings:
        if unknown := sorted(set(self.wait) - set(self.records)):
            raise ValueError(f"wait: {unknown[0]!r} is no source of pull that is files; add it there")
        for source, path in self.wait.items():
            if not re.fullmatch(r"(\{day\}|\{hour\}|[^{}])+", path):
                raise ValueError(
                    f"wait: that of {source} must be a path, with {{day}} and {{hour}} alone in braces"
                )
        return self

    @property
    def records(self) -> dict[str, str]:
        """The sources of `pull` that are files, with their paths."""
        return {source: path for source, path in self.pull.items() if source != SERVER}

    def due_s(self, cycle_s: int) -> int:
        """Seconds from a decision time until its plans are to be pushed: `deadline`, or one cycle."""
        return cycle_s if self.deadline == "auto" else self.deadline

    @property
    def servers(self) -> dict[str, str]:
        """The sources of `pull` that are servers, with the request."""
        return {source: request for source, request in self.pull.items() if source == SERVER}


class Scheduling(NamedTuple):
    """`[airflow]`, with the cycle of plans and the number of days that decide a promotion."""

    airflow: AirflowSettings
    cycle_s: int
    test_days: int

    @property
    def due_s(self) -> int:
        """Seconds from a decision time until its plans are to be pushed."""
        return self.airflow.due_s(self.cycle_s)

    @property
    def timeout_s(self) -> int:
        """The time after which a task of a cycle's DAG is ended: two cycles, as the next run is waiting."""
        return 2 * self.cycle_s


def scheduling(env: Mapping[str, str] = os.environ) -> Scheduling:
    """The settings that the DAGs are made from. Raises ConfigError.

    It takes a few milliseconds, because Airflow parses DAGs often.
    """
    given = layered(env=env)
    settings, values = checked(AirflowSettings, given, at="airflow"), given.values
    cycle = values["features"]["cycle"]
    cycle_s = parse_duration(cycle) if isinstance(cycle, str) else int(cycle)
    return Scheduling(settings, cycle_s, int(values["training"]["min_test_days"]))
