"""The settings of services: `[serve]`, the placement service, and `[steward]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pydantic

from jobs.ground.settings.values import Bytes, Seconds, Section, Share


class SiteSettings(Section):
    """Capacity of one site's network, caches and job slots; the default of each key is that of [serve]."""

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


Policy = Literal["auto", "learned", "s3fifo", "dataset-lru", "lru"]


class StewardSettings(Section):
    """The order in which stewards evict, how much stays free, and where their figures are."""

    policy: Policy
    look: Seconds
    state: Path
    """Parent of one folder per cache; a cache's folder may belong to another account."""

    def figures(self, cache: str) -> Path:
        """The file of the figures that a steward of `cache` reports."""
        return self.state / cache / f"{cache}.json"

    def copies(self, cache: str) -> Path:
        """The folder with a copy of the promoted order that a steward of `cache` followed last."""
        return self.state / cache / "order"
