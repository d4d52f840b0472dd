"""The sources of `cachecast pull`, and the settings of what is read: arrivals, queues of jobs, Rucio."""

from typing import Annotated, Literal

import pydantic

from features.common.plugins import Group
from jobs.ground.settings.our_sources import GROUP, OURS
from jobs.ground.settings.values import HttpUrl, Name, Pattern, Pause, Seconds, Section, Share, WholeDays
from jobs.ground.signals import Stopped

SERVER = "rucio_server"  # the source that is a server; `--input` is the request
SOURCES = Group("source", GROUP, (KeyboardInterrupt, Stopped))  # the sources that other packages bring


def is_source(name: str) -> bool:
    return name in OURS or bool(SOURCES.of_others(name))


def _checked(name: str) -> str:
    if name != SERVER and not is_source(name):
        raise ValueError(f"there is no source {name!r}; {known()}")
    return name


def known() -> str:
    """A part of a sentence that lists the sources."""
    return "there are " + ", ".join(sorted({SERVER, *OURS, *(source.name for source in SOURCES.of_others())}))


SourceName = Annotated[str, pydantic.AfterValidator(_checked)]
IN_USE = "in-use"  # the request for the datasets that are in use, by the accesses table


class NamesSettings(Section):
    scopes: dict[
        Annotated[str, pydantic.Field(pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._+=@-]*)+$")],
        Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")],
    ]


class ArrivalSettings(Section):
    """When the records of a decision time are incomplete; conf/base.toml explains the keys."""

    usual_share: Share
    least: int = pydantic.Field(ge=1)
    weeks: int = pydantic.Field(ge=1, le=52)
    delay: Pause
    rejected: Share
    max_age: Seconds
    incomplete: Literal["note", "skip"]


class QueueSettings(Section):
    """How queues of jobs are queried, and how long their entries are valid."""

    stale: Seconds
    timeout: Seconds
    token: pydantic.SecretStr
    sites: dict[Name, tuple[Pattern, ...]]


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
