"""The tree of settings, read once from TOML files and the environment, and validated.

The shipped `conf/base.toml` holds every default. It is overridden by the TOML file, or the folder with
`base.toml` and `caches/*.toml`, that `--conf` (or CACHECAST_CONF) names; that by `secrets.toml` beside it;
and all by environment variables like `CACHECAST_PLAN__HORIZON`. Rooms below jobs receive values only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pydantic

from features.common.errors import ConfigError, secrets_of
from features.common.faults import of_keys
from features.common.hosts import address_and_port
from features.common.units import duration_label
from jobs.ground.settings.layers import layered
from jobs.ground.settings.plan import FeatureSettings, PlanSettings
from jobs.ground.settings.sections import (
    AirflowSettings,
    BenefitSettings,
    OriginSettings,
    ServeSettings,
    StewardSettings,
    StudySettings,
)
from jobs.ground.settings.sources import (
    ArrivalSettings,
    NamesSettings,
    QueueSettings,
    RucioSettings,
    SourceName,
)
from jobs.ground.settings.values import (
    PREFIX,
    Bytes,
    Destination,
    Name,
    Pattern,
    Pause,
    Seconds,
    Section,
    Watermarks,
    checked,
)
from replay.study.benefit import Region

_XROOTD_PORT = 1094
LearnerName = Literal["lightgbm", "lightgbm_monotone", "hist_boosting", "forest", "logistic"]


class TablesSettings(Section):
    root: str = pydantic.Field(min_length=1)

    @pydantic.field_validator("root")
    @classmethod
    def _without_login(cls, root: str) -> str:
        # Messages and files show it.
        if secrets_of(root):
            raise ValueError("root must not contain a key; give keys in the environment (docs/secure.md)")
        return root


class SparkSettings(Section):
    master: str
    driver_memory: str
    shuffle_partitions: int = pydantic.Field(gt=0)
    conf: dict[str, str]


class RegionSettings(Section):
    name: Name


class TrainingSettings(Section):
    max_rows: int = pydantic.Field(gt=0)
    every: Seconds
    span: Seconds
    test_share: float = pydantic.Field(gt=0, lt=1)
    learners: tuple[LearnerName, ...] = pydantic.Field(min_length=1)
    trees: int = pydantic.Field(gt=0)
    seed: int
    max_age: Seconds
    min_test_days: int = pydantic.Field(ge=21)
    order: bool
    spool: str = pydantic.Field(min_length=1)

    @pydantic.field_validator("learners")
    @classmethod
    def _one_can_serve(cls, names: tuple[LearnerName, ...]) -> tuple[LearnerName, ...]:
        if not any(name.startswith("lightgbm") for name in names):
            raise ValueError("name lightgbm or lightgbm_monotone too: only their models serve")
        return names


class MlflowSettings(Section):
    """Where runs and models are recorded, and which models make predictions."""

    uri: str
    artifacts: str
    experiment: str
    serve: tuple[Literal["champion", "candidate"], ...] = pydantic.Field(min_length=1)
    patience: Seconds


class ReplaySettings(Section):
    watermarks: Watermarks
    purge_interval: Seconds


class PushSettings(Section):
    parallel: int = pydantic.Field(gt=0, le=256)
    timeout: Seconds
    attempts: int = pydantic.Field(gt=0)
    retry_after: Pause
    breaker: int = pydantic.Field(gt=0)
    bytes_per_s: Bytes | None = None
    journal: str
    keep: Seconds


class SourcesSettings(Section):
    """What access records lack: the hosts of caches, and what counts as demand."""

    local_up_to: Bytes
    cache_hosts: tuple[str, ...]
    storages: tuple[Pattern, ...]
    job_sites: tuple[Pattern, ...]
    demand: dict[str, SourceName]


class MetricsSettings(Section):
    folder: str


class UsersSettings(Section):
    """The secret that users' hashes are salted with."""

    salt: pydantic.SecretStr


class CollectSettings(Section):
    """How many captures the collector keeps, and how long; the broker that it follows, if any."""

    quota: Bytes
    keep: Seconds
    broker: str
    broker_username: str
    broker_password: pydantic.SecretStr
    broker_ca_cert: str
    broker_cert: str
    broker_key: str
    client: Name
    subscribe: tuple[Destination, ...]


class CacheSettings(Section):
    name: Name
    kind: Literal["xcache", "directory"]
    url: str
    site: Name | None = None
    address: str | None = None
    hosts: tuple[str, ...] = ()
    capacity: Bytes
    watermarks: Watermarks = (0.90, 0.95)
    purge_interval: Seconds = 300
    namespace: Path | None = None
    spaces: tuple[Path, ...] = ()
    gstream: Path | None = None
    origin: Path | None = None
    touch_every: Literal["auto"] | Seconds = "auto"
    steward: bool = False
    evict_guard: Pause = 600
    max_clock_skew: Pause = 60
    storage: tuple[Pattern, ...] = ()
    redirector: str | None = pydantic.Field(default=None, pattern=r"^roots?://[A-Za-z0-9.:\[\]-]+$")
    prefix: str | None = pydantic.Field(default=None, pattern=PREFIX)
    drain: bool = False
    keytab: Path | None = None
    proxy: Path | None = None
    token: Path | None = None
    audience: str | None = None
    rse: str = pydantic.Field(default="", pattern="^([A-Za-z0-9]+([_-][A-Za-z0-9]+)*)?$")

    @pydantic.model_validator(mode="after")
    def _makes_sense(self) -> CacheSettings:
        if self.kind == "xcache" and not self.url.startswith(("root://", "roots://")):
            raise ValueError("url must start with root:// or roots://")
        if self.kind == "xcache" and urlsplit(self.url).port == 0:  # what is no port is a ValueError too
            raise ValueError("url must not have port 0")
        if self.kind == "directory" and self.origin is None:
            raise ValueError("a directory cache needs origin, the folder that its files are fetched from")
        if self.redirector is not None and (self.kind != "xcache" or self.redirector == self.url):
            raise ValueError("redirector is for an xcache whose own url, without the redirector, is `url`")
        return self

    @property
    def at_site(self) -> str:
        """The site whose jobs it serves, as the placement service names it."""
        return self.site or self.name

    @property
    def senders(self) -> list[str]:
        """Its `hosts`, each an address or a name, perhaps with a port, in the one form that records have."""
        return [":".join(filter(None, address_and_port(host))) for host in self.hosts]

    @property
    def door(self) -> tuple[str, int]:
        """Host (of IPv6 in brackets) and port of its URL. Raises ConfigError."""
        try:
            parts = urlsplit(self.url)
            host = parts.hostname or ""
            return f"[{host}]" if ":" in host else host, parts.port or _XROOTD_PORT
        except ValueError as error:
            raise ConfigError(f"caches.{self.name}.url", str(error)) from None

    @property
    def folders(self) -> list[Path]:
        here = [self.namespace, *self.spaces, self.gstream, self.origin]
        return [*([Path(self.url)] if self.kind == "directory" else []), *filter(None, here)]


def site_capacities(caches: Iterable[CacheSettings]) -> dict[str, dict[str, int]]:
    """Capacity of `caches` in bytes by site and name, by which planner and placement distribute files."""
    sites: dict[str, dict[str, int]] = {}
    for cache in caches:
        sites.setdefault(cache.at_site, {})[cache.name] = cache.capacity
    return sites


class Settings(Section):
    tables: TablesSettings
    spark: SparkSettings
    region: RegionSettings
    features: FeatureSettings
    training: TrainingSettings
    mlflow: MlflowSettings
    replay: ReplaySettings
    study: StudySettings
    benefit: BenefitSettings
    regions: dict[str, OriginSettings]
    plan: PlanSettings
    push: PushSettings
    steward: StewardSettings
    queue: QueueSettings
    rucio: RucioSettings
    serve: ServeSettings
    users: UsersSettings
    sources: SourcesSettings
    names: NamesSettings
    arrivals: ArrivalSettings
    airflow: AirflowSettings
    metrics: MetricsSettings
    collect: CollectSettings
    caches: dict[str, CacheSettings] = pydantic.Field(default={})

    @pydantic.model_validator(mode="after")
    def _plans_by_a_known_horizon(self) -> Settings:
        if self.plan.horizon not in self.features.horizons:
            horizon, known = duration_label(self.plan.horizon), map(duration_label, self.features.horizons)
            raise of_keys(
                f"{horizon} is none of features.horizons ({', '.join(known)}); choose one of them, or add it",
                *("plan.horizon", "features.horizons"),
            )
        return self

    @pydantic.model_validator(mode="after")
    def _caches_by_their_names(self) -> Settings:
        # Journal and tables identify a cache by its name: two of the same name would share their plans.
        for key, cache in self.caches.items():
            if cache.name != key:
                raise of_keys(f"{cache.name!r} must be {key!r}, the name of its table", f"caches.{key}.name")
        return self

    @pydantic.model_validator(mode="after")
    def _hosts_are_of_one_cache(self) -> Settings:
        senders = self.senders
        for cache in self.caches.values():
            for host, sender in zip(cache.hosts, cache.senders, strict=True):
                if (other := senders[sender]) != cache.name:
                    raise of_keys(f"{host} is a host of {other} too", f"caches.{cache.name}.hosts")
        return self

    @pydantic.model_validator(mode="after")
    def _rses_are_of_one_cache(self) -> Settings:
        # Each would withdraw from Rucio what the other holds.
        first: dict[str, str] = {}
        for cache in self.caches.values():
            if cache.rse and (other := first.setdefault(cache.rse, cache.name)) != cache.name:
                raise of_keys(f"{cache.rse} is the RSE of {other} too", f"caches.{cache.name}.rse")
        return self

    @pydantic.model_validator(mode="after")
    def _sites_have_one_redirector(self) -> Settings:
        first: dict[str, CacheSettings] = {}
        for cache in self.caches.values():
            other = first.setdefault(cache.at_site, cache)
            if other.redirector != cache.redirector:
                raise of_keys(
                    f"caches of one site have one redirector: {other.name} has {other.redirector or 'none'}",
                    f"caches.{cache.name}.redirector",
                )
        return self

    @classmethod
    def load(
        cls,
        conf: Path | None = None,
        *,
        base: Path | None = None,
        tables: str | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> Settings:
        """The settings of this run. Raises ConfigError.

        `conf`: the site's file or folder, which overrides `base`, another one; `tables`: root given on the
        command line.
        """
        return checked(cls, layered(conf, base=base, tables=tables, env=env))

    @property
    def origin_regions(self) -> tuple[Region, ...]:
        """`regions` in the type of the replay room, in their order."""
        return tuple(Region(name, region.hosts, region.rtt_ms) for name, region in self.regions.items())

    @property
    def senders(self) -> dict[str, str]:
        """The name of the cache that each host, or host:port, reports as."""
        return {sender: cache.name for cache in self.caches.values() for sender in cache.senders}

    @property
    def cache_rses(self) -> tuple[str, ...]:
        return tuple(cache.rse for cache in self.caches.values() if cache.rse)

    def cache(self, name: str) -> CacheSettings:
        """The cache called `name`. Raises ConfigError."""
        if name not in self.caches:
            known = ", ".join(sorted(self.caches)) or "none"
            raise ConfigError(
                "caches", f"no cache is called {name!r} (configured: {known}); add caches/{name}.toml"
            )
        return self.caches[name]
