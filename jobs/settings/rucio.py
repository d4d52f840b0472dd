"""The settings of `[rucio]`."""

from __future__ import annotations

from typing import Literal

import pydantic

from jobs.settings.values import Seconds, Section, Share


class RucioSettings(Section):
    """The Rucio server, if any, and how to log in there."""

    url: str
    auth_url: str
    account: str
    auth_type: Literal["userpass", "x509", "x509_proxy", "oidc"]
    vo: str
    username: str
    password: pydantic.SecretStr
    client_cert: str
    client_key: str
    client_proxy: str
    ca_cert: str
    timeout: Seconds
    attempts: int = pydantic.Field(gt=0, le=20)
    in_use: Seconds
    broker: str
    broker_username: str
    broker_password: pydantic.SecretStr
    withdraw_share: Share
    topic: str = pydantic.Field(pattern="^/(topic|queue)/[A-Za-z0-9._-]+$")

    @pydantic.model_validator(mode="after")
    def _makes_sense(self) -> RucioSettings:
        for name in ("url", "auth_url"):
            url = getattr(self, name)
            if url and (not url.startswith(("http://", "https://")) or "@" in url):
                raise ValueError(
                    f"{name} must be a URL without a user, for example https://rucio.example.org"
                )
        if self.in_use % 86400:
            raise ValueError("in_use must be whole days")
        return self
