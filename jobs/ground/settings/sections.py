"""The settings of the DAGs: the table `[airflow]`, read without those of any other room.

The settings of services: `[serve]`, the placement service, and `[steward]`.

Settings of the caching study: its verdicts, the benefit model and the regions of origins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import pydantic

from features.common.units import parse_duration
from jobs.ground.settings.layers import layered
from jobs.ground.settings.sources import SERVER, SourceName
from jobs.ground.settings.values import Bytes, HttpUrl, Name, Seconds, SecretHttpUrl, Section, Share, checked
from replay.study.benefit import BenefitModel, EfficiencyPoint, Tier

Policy = Literal["auto", "learned", "s3fifo", "dataset-lru", "lru"]


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


class Scheduling(NamedTuple):
    """`[airflow]`, with the cycle of plans and the number of days that decide a promotion."""

    airflow: AirflowSettings
    cycle_s: int
    test_days: int

    @property
    def due_s(self) -> int:
        return self.airflow.due_s(self.cycle_s)

    @property
    def timeout_s(self) -> int:
        """The time after which a task of a cycle's DAG is ended: two cycles, as the next run is waiting."""
        return 2 * self.cycle_s


def scheduling(env: Mapping[str, str] = os.environ) -> Scheduling:
    """The settings of the DAGs, in few milliseconds, as Airflow parses often. Raises ConfigError."""
    layers = layered(env=env)
    settings, values = checked(AirflowSettings, layers, at="airflow"), layers.values
    cycle = values["features"]["cycle"]
    cycle_s = parse_duration(cycle) if isinstance(cycle, str) else int(cycle)
    return Scheduling(settings, cycle_s, int(values["training"]["min_test_days"]))


class SiteSettings(Section):
    """Capacity of one site's network, caches and job slots; defaults are those of [serve]."""

    network: Bytes | None = None
    cache_read: Bytes | None = None
    slots: int | None = pydantic.Field(default=None, gt=0)


class IssuerSettings(Section):
    """An issuer of tokens: its public keys, what `aud` must be, and the role of each `sub`."""

    keys: Path
    audience: str = pydantic.Field(min_length=1)
    subjects: dict[str, str] = pydantic.Field(min_length=1)


class ServeSettings(Section):
    """The placement service; conf/base.toml explains the keys."""

    host: str = pydantic.Field(min_length=1)
    hosts: tuple[str, ...]
    port: int = pydantic.Field(ge=0, lt=2**16)
    database: str = pydantic.Field(min_length=1)
    token: pydantic.SecretStr
    token_file: str
    cache_tokens: str
    federation_tokens: str = ""
    issuers: dict[str, IssuerSettings] = pydantic.Field(default_factory=dict)
    docs: str = pydantic.Field(default="", pattern=r"^(https?://[^\s\"'<>]+)?$")
    tls_cert: str
    tls_key: str
    client_ca: str = ""
    client_subjects: dict[str, str] = pydantic.Field(default_factory=dict)
    plain_http: bool
    connections: int = pydantic.Field(ge=64, le=100_000)
    connections_per_client: int = pydantic.Field(ge=8)
    liveness: Seconds
    forget: Seconds
    sync: Seconds
    max_wait: Seconds
    never: tuple[str, ...]
    min_reads: float = pydantic.Field(ge=0)
    site_share: Annotated[Share, pydantic.Field(gt=0)]
    network: Bytes
    cache_read: Bytes
    slots: int = pydantic.Field(gt=0)
    sites: dict[str, SiteSettings]

    @pydantic.model_validator(mode="after")
    def _makes_sense(self) -> ServeSettings:
        if self.forget <= self.liveness:
            raise ValueError("forget must be longer than liveness")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key go together")
        if bool(self.client_ca) != bool(self.client_subjects):
            raise ValueError("client_ca and client_subjects go together")
        if self.client_ca and not self.tls_cert:
            raise ValueError("client_ca needs tls_cert: certificates are shown over TLS")
        return self


class StewardSettings(Section):
    """The order in which stewards evict, how much stays free, and where their figures are."""

    policy: Policy
    look: Seconds
    state: Path  # parent of one folder per cache; a cache's folder may belong to another account

    def figures(self, cache: str) -> Path:
        """The file of the figures that a steward of `cache` reports."""
        return self.state / cache / f"{cache}.json"

    def copies(self, cache: str) -> Path:
        """The folder with a copy of the promoted order that a steward of `cache` followed last."""
        return self.state / cache / "order"


class StudySettings(Section):
    """The study's cache, and the thresholds at which a category of files should be cached."""

    capacity_fraction: float = pydantic.Field(gt=0, le=1)
    min_saved_per_byte: float = pydantic.Field(gt=0)
    min_reread_share: float = pydantic.Field(gt=0, le=1)
    small_file: Bytes


class PointSettings(Section):
    rtt_ms: float = pydantic.Field(ge=0)
    cpu_efficiency: Share
    source: str = pydantic.Field(min_length=1)


class BenefitSettings(Section):
    points: tuple[PointSettings, ...]
    hit_points: tuple[PointSettings, ...]
    unknown_remote_efficiency: Share
    unknown_local_efficiency: Share
    miss_slowdown: float = pydantic.Field(ge=0)
    cache_rtt_ms: float = pydantic.Field(ge=0)
    job_read_rate: Bytes
    hs06_per_core: float = pydantic.Field(gt=0)
    medium: str
    read_rates: dict[str, Bytes]

    @pydantic.model_validator(mode="after")
    def _makes_sense(self) -> BenefitSettings:
        if self.medium not in self.read_rates:
            raise ValueError(f"medium must be one of read_rates ({', '.join(self.read_rates)})")
        if missing := {"ssd", "hdd"} - set(self.read_rates):
            raise ValueError(f"read_rates must have a rate for {' and '.join(sorted(missing))}")
        return self

    @property
    def model(self) -> BenefitModel:
        """The same values in the type of the replay room. Raises ConfigError."""
        return BenefitModel(
            points=_points(self.points),
            hit_points=_points(self.hit_points),
            unknown_remote_efficiency=self.unknown_remote_efficiency,
            unknown_local_efficiency=self.unknown_local_efficiency,
            miss_slowdown=self.miss_slowdown,
            cache_rtt_ms=self.cache_rtt_ms,
            job_read_rate_bytes_s=self.job_read_rate,
            hs06_per_core=self.hs06_per_core,
            medium=Tier(self.medium, self.read_rates[self.medium]),
        )


def _points(points: tuple[PointSettings, ...]) -> tuple[EfficiencyPoint, ...]:
    return tuple(EfficiencyPoint(point.rtt_ms, point.cpu_efficiency, point.source) for point in points)


class OriginSettings(Section):
    """One region of origins: patterns of hosts or RSEs, and its round-trip time."""

    hosts: tuple[str, ...] = pydantic.Field(min_length=1)
    rtt_ms: float | None = pydantic.Field(default=None, ge=0)
