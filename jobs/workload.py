"""A generated month, written as the raw files that a site has: Rucio traces by day, and a files catalogue."""

from __future__ import annotations

import dataclasses
import datetime as dt
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from features.errors import ConfigError
from features.times import DAY_S, day_label
from replay.workload import Workload, WorkloadConfig, generate

PUBLISHED_AFTER_S = 5.0
"""Seconds from the end of a read until its trace is known."""


@dataclasses.dataclass(frozen=True)
class WorkloadSummary:
    """What was written: `traces` and `catalogue` are what `pull` takes as input."""

    traces: str
    catalogue: str
    days: int
    accesses: int
    files: int
    size_bytes: int


def run(scenario: str, *, start_s: int, seed: int, days: int | None, out: Path) -> WorkloadSummary:
    """Write `out/traces/traces.DAY.jsonl` and `out/files.jsonl`; the same arguments give the same files.

    `scenario`: a name in conf/workloads, or a TOML file. Raises ConfigError.
    """
    config = load(scenario, start_s=start_s, seed=seed, days=days)
    month = generate(config)
    (out / "traces").mkdir(parents=True, exist_ok=True)
    for day in range(start_s, start_s + config.days * DAY_S, DAY_S):
        _write(_traces(_of_day(month, day)), out / "traces" / f"traces.{day_label(day)}.jsonl")
    _write(_catalogue(month.files), out / "files.jsonl")
    return WorkloadSummary(
        traces=str(out / "traces" / "traces.*.jsonl"),
        catalogue=str(out / "files.jsonl"),
        days=config.days,
        accesses=month.accesses.num_rows,
        files=month.files.num_rows,
        size_bytes=int(np.sum(month.files["size_bytes"].to_numpy())),
    )


def load(scenario: str, *, start_s: int, seed: int, days: int | None) -> WorkloadConfig:
    """The scenario's config, from its first second `start_s` on. Raises ConfigError."""
    path = Path(scenario) if scenario.endswith(".toml") else None
    source = path or resources.files("conf").joinpath("workloads", f"{Path(scenario).name}.toml")
    try:
        values: dict[str, Any] = tomllib.loads(source.read_text())
    except FileNotFoundError:
        raise ConfigError(
            "--scenario", f"there is no {scenario!r}; give a name in conf/workloads or a file"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(scenario, f"not TOML that can be read: {error}") from None
    chosen = {"seed": seed, "start": dt.datetime.fromtimestamp(start_s, dt.UTC)}
    return WorkloadConfig.from_mapping(values | chosen | ({"days": days} if days else {}), where=scenario)


def _of_day(month: Workload, day_s: int) -> pd.DataFrame:
    at = month.accesses["accessed_at"].cast(pa.int64()).to_numpy()
    first, stop = np.searchsorted(at, np.array([day_s, day_s + DAY_S]) * 1_000_000)
    rows: pd.DataFrame = month.accesses.slice(first, stop - first).to_pandas()
    return rows


def _traces(reads: pd.DataFrame) -> pd.DataFrame:
    """Rucio traces, one row each; fields and values as a pilot sends them (trace schema of Rucio 41)."""
    start, end = _unix(reads["accessed_at"]), _unix(reads["closed_at"])
    analysis = reads["activity"] == "analysis"
    return pd.DataFrame(
        {
            "eventType": np.where(analysis, "get_sm_a", "get_sm"),
            "eventVersion": "1.0",
            "clientState": "DONE",
            "scope": reads["scope"],
            "filename": reads["name"],
            "datasetScope": reads["scope"],
            "dataset": reads["dataset"].str.partition(":")[2],
            "filesize": reads["size_bytes"],
            "localSite": reads["site"],
            "remoteSite": reads["origin"],
            "protocol": "root",
            "usr": reads["user"],
            "taskid": reads["task"],
            "uuid": reads["event_id"],
            "transferStart": start,
            "transferEnd": end,
            "traceTimeentryUnix": end + PUBLISHED_AFTER_S,
        }
    )


def _catalogue(files: pa.Table) -> pd.DataFrame:
    """The lines of Rucio's bulk file listing, with the creation time of each file."""
    rows: pd.DataFrame = files.to_pandas()
    parent = rows["dataset"].str.partition(":")
    return pd.DataFrame(
        {
            "parent_scope": parent[0],
            "parent_name": parent[2],
            "scope": rows["scope"],
            "name": rows["name"],
            "bytes": rows["size_bytes"],
            "created_at": _unix(rows["created_at"]),
            "rses": rows["origins"],
        }
    )


def _unix(at: pd.Series) -> pd.Series:
    return at.astype("int64") / 1e6


def _write(rows: pd.DataFrame, path: Path) -> None:
    rows.to_json(path, orient="records", lines=True, double_precision=6)
