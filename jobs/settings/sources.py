"""The sources of `cachecast pull`, and the settings of what is read: arrivals, queues of jobs, Rucio."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import pydantic

from jobs.settings.values import HttpUrl, Pause, Seconds, Section, Share, WholeDays

SourceName = Literal[
    "rucio_traces",
    "rucio_files",
    "rucio_dumps",
    "atlas_popularity",
    "cms_aaa",
    "cmssw_pop",
    "cms_tracer",
    "xcache_gstream",
    "xcache_cinfo",
    "xrootd_fstream",
    "osdf_accesses",
    "osdf_log",
    "popularity_series",
    "htcondor_history",
    "wmarchive",
    "panda_jobs",
]
"""Sources that are files at a path."""
ServerName = Literal["rucio_server"]
"""Sources that are servers; `--input` is the request."""

SOURCES: tuple[str, ...] = get_args(SourceName)
SERVERS: tuple[str, ...] = get_args(ServerName)

CATALOGUES = frozenset({"rucio_files", "rucio_dumps"})
"""Those of them that list files."""

OF_JOBS = frozenset({"htcondor_history", "wmarchive", "panda_jobs"})
"""Those that report jobs that have ended."""

OF_ACCESSES = tuple(source for source in SOURCES if source not in CATALOGUES | OF_JOBS)
"""Those whose rows are accesses."""

IN_USE = "in-use"
"""The request for the datasets that are in use, by the accesses table."""

WITHOUT_SIZES = frozenset({"cms_tracer"})
"""Sources of accesses that do not state the sizes of files."""

OF_CACHES = frozenset({"xcache_gstream", "xcache_cinfo"})
"""Sources that are records of the caches themselves, with the bytes served from disk."""


class NamesSettings(Section):
    """What names of files do not tell."""

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
