"""Options that mean the same in every command."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from jobs.settings.tree import Settings

_log = logging.getLogger(__name__)

Conf = Annotated[
    Path | None,
    typer.Option(help="TOML file or folder with the site's settings [env: CACHECAST_CONF]", exists=True),
]
TablesRoot = Annotated[
    str | None, typer.Option("--tables", help="root of the tables, instead of [tables] root")
]
Json = Annotated[bool, typer.Option("--json", help="print the answer as JSON, and nothing else")]
Force = Annotated[
    bool, typer.Option("--force", help="do it even if it takes away more than the settings allow")
]
Cache = Annotated[str, typer.Option(help="name of a configured cache")]
AsOf = Annotated[
    str, typer.Option(help="decision time, for example 2026-03-01T04:00:00Z; nothing later is used")
]
MaybeAsOf = Annotated[
    str | None, typer.Option(help="decision time, for example 2026-03-01T04:00:00Z; defaults to now")
]
OneAsOf = Annotated[str | None, typer.Option(help="one decision time, for example 2026-03-01T04:00:00Z")]
Day = Annotated[str | None, typer.Option(help="UTC day, for example 2026-03-01")]

TracePath = Annotated[
    Path | None,
    typer.Option(help="a trace: accesses table, Parquet, CSV, libCacheSim's; else the site's tables"),
]
Columns = Annotated[str, typer.Option(help="the trace's columns, for example time=t,item=id,size=size")]
TimeUnit = Annotated[str, typer.Option(help="unit of the trace's times, if they are numbers: s, ms, us, ns")]
Kind = Annotated[str, typer.Option(help="kind of the trace: auto, accesses, table, oracleGeneral, lcs")]
Sort = Annotated[bool, typer.Option("--sort", help="sort the trace by time instead of refusing it")]
Site = Annotated[str | None, typer.Option(help="only accesses of jobs at this site")]
Since = Annotated[
    str | None, typer.Option("--from", help="first UTC day that counts; earlier accesses warm the cache")
]
Until = Annotated[str | None, typer.Option("--to", help="last UTC day that counts")]
Capacity = Annotated[str, typer.Option(help="capacities, for example 50TB,100TB")]
CapacityFraction = Annotated[
    str, typer.Option(help="capacities as fractions of the bytes of all files read, for example 0.05,0.1")
]
Workers = Annotated[int | None, typer.Option(min=1, help="parallel replays; defaults to one per core")]
Out = Annotated[Path | None, typer.Option(help="also write the answer: .html, .svg, .csv, .parquet or .json")]


def load(conf: Path | None, *, tables: str | None = None) -> Settings:
    """The settings of this run; `tables`: root of the tables. Raises ConfigError."""
    from jobs.settings.tree import Settings

    settings = Settings.load(conf, tables=tables)
    where = conf or os.environ.get("CACHECAST_CONF") or "no file: the defaults"
    _log.info("settings from %s; tables at %s", where, settings.tables.root)
    return settings
