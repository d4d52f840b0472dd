"""The settings of the DAGs: the table `[airflow]`, read without those of any other room."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import pydantic

from features.units import parse_duration
from jobs.settings.layers import layered
from jobs.settings.sources import SERVERS, SOURCES
from jobs.settings.values import Name, Seconds, Section, checked


class QueueInput(Section):
    """A queue of jobs. `input`: where its entries are read; `site`: of entries that name no site."""

    input: str = pydantic.Field(min_length=1)
    site: str = ""


class AirflowSettings(Section):
    """Schedules, retries and alerts of the DAGs; conf/base.toml explains the keys."""

    url: str
    pull: dict[str, str]
    queues: dict[Name, QueueInput]
    train: str = pydantic.Field(min_length=1)
    report: str = pydantic.Field(min_length=1)
    reports: str = pydantic.Field(min_length=1)
    spark: str
    retries: int = pydantic.Field(ge=1)
    retry_delay: Seconds
    max_retry_delay: Seconds
    deadline: Seconds
    long_deadline: Seconds
    webhook: pydantic.SecretStr

    @pydantic.model_validator(mode="after")
    def _makes_sense(self) -> AirflowSettings:
        known, webhook = {*SOURCES, *SERVERS}, self.webhook.get_secret_value()
        if unknown := sorted(set(self.pull) - known):
            raise ValueError(f"pull: there is no source {unknown[0]!r}; there are {', '.join(sorted(known))}")
        if webhook and not webhook.startswith(("http://", "https://")):
            raise ValueError("webhook must start with http:// or https://")
        if webhook and not _is_usable(webhook):
            raise ValueError("webhook must be a URL of printable ASCII, with a host, and without a user")
        if self.url and not (self.url.startswith(("http://", "https://")) and _is_usable(self.url)):
            raise ValueError("url must be an http(s) URL of printable ASCII, with a host, and without a user")
        return self

    @property
    def records(self) -> dict[str, str]:
        """The sources of `pull` that are files, with their paths."""
        return {source: path for source, path in self.pull.items() if source not in SERVERS}

    @property
    def servers(self) -> dict[str, str]:
        """The sources of `pull` that are servers, with the request."""
        return {source: request for source, request in self.pull.items() if source in SERVERS}


def _is_usable(url: str) -> bool:
    """Whether an HTTP client accepts it: if not, its error would show the URL with its secret."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return has_host and "@" not in parts.netloc and re.fullmatch("[!-~]+", url) is not None


class Scheduling(NamedTuple):
    """`[airflow]`, with the cycle of plans and the number of days that decide a promotion."""

    airflow: AirflowSettings
    cycle_s: int
    test_days: int


def scheduling(env: Mapping[str, str] = os.environ) -> Scheduling:
    """The settings that the DAGs are made from. Raises ConfigError.

    It takes a few milliseconds, because Airflow parses DAGs often.
    """
    given = layered(env=env)
    settings, values = checked(AirflowSettings, given, at="airflow"), given.values
    cycle = values["features"]["cycle"]
    cycle_s = parse_duration(cycle) if isinstance(cycle, str) else int(cycle)
    return Scheduling(settings, cycle_s, int(values["training"]["min_test_days"]))
