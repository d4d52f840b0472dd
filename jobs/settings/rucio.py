"""The settings of `[rucio]`."""

from __future__ import annotations

from typing import Literal

import pydantic

from jobs.settings.values import HttpUrl, Seconds, Section, Share, WholeDays


class RucioSettings(Section):
    """The Rucio server, if any, and how to log in there."""

    url: HttpUrl
    auth_url: HttpUrl
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
    in_use: WholeDays
    broker: str
    broker_username: str
    broker_password: pydantic.SecretStr
    withdraw_share: Share
    topic: str = pydantic.Field(pattern="^/(topic|queue)/[A-Za-z0-9._-]+$")
