"""Generated accesses, written as a trace with its catalogue, or as the raw files of a site."""

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from features.common.errors import ConfigError, InputError
from features.common.files import replaced
from features.common.progress import Advance, unwatched
from features.common.times import DAY_S, day_label
from jobs.ground.settings.layers import read_file, read_toml
from jobs.ground.settings.tree import Settings
from jobs.ground.store import generated
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull
from replay.read.roles import GENERATED
from replay.workload import Workload, WorkloadConfig, generate
from replay.workload.config import MAX_ACCESSES
from replay.workload.tables import ROWS_AT_ONCE

PUBLISHED_AFTER_S = 5.0  # seconds from the end of a read until its trace is published


@dataclasses.dataclass(frozen=True)
class WorkloadSummary:
    """Paths of a trace and catalogue, or raw files for `pull`; `size_bytes`: of all files, read or not."""

    traces: str
    catalogue: str
    days: int
    accesses: int
    files: int
    size_bytes: int


def run(
    settings: Settings,
    *,
    scenario: str,
    conf: Path | None,
    start_s: int | None,
    seed: int,
    days: int | None,
    accesses: int | None,
    scale: float | None,
    out: Path,
    raw: bool,
    pull_too: bool,
    on_progress: Advance,
) -> WorkloadSummary:
    """Generate the accesses of `scenario`; `conf`: a folder that may have its own scenarios in `workloads/`.

    `pull_too`: write raw files and pull them, as of their first day. Raises as `load` and `write`.
    """
    own = None if conf is None else conf / "workloads" / f"{scenario}.toml"
    place = str(own) if own is not None and own.is_file() else scenario
    config = load(place, start_s=start_s, seed=seed, days=days, scale=scale, accesses=accesses)
    if pull_too:
        if others := set((out / "traces").glob("traces.*.jsonl")).difference(_of_days(config, out)):
            raise InputError(f"{min(others)} is of another day, and would be pulled too; name another --out")
        generated.mark(Tables.of(settings), label(config))
    written = write(config, out=out, raw=raw or pull_too, on_progress=on_progress)
    if pull_too:
        for source, path in (("rucio_traces", written.traces), ("rucio_files", written.catalogue)):
            pull.run(settings, source=source, path=path, day_s=config.start_s)
    return written


def write(
    config: WorkloadConfig,
    *,
    out: Path,
    raw: bool = False,
    on_progress: Advance = unwatched,
) -> WorkloadSummary:
    """Write `out/accesses.parquet` and `out/files.parquet`; the same arguments give the same files.

    `raw`: write `out/traces/traces.DAY.jsonl` and `out/files.jsonl` instead. Raises ConfigError, InputError.
    """
    on_progress(0, 2, "generating")
    workload = generate(config)
    on_progress(1, 2, "writing")
    try:
        traces, catalogue = (_write_raw if raw else _write_trace)(workload, out)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error}") from None
    return WorkloadSummary(
        traces=str(traces),
        catalogue=str(catalogue),
        days=config.days,
        accesses=workload.n_accesses,
        files=workload.n_files,
        size_bytes=int(np.sum(workload.catalogue.size_bytes)),
    )


def load(
    scenario: str,
    *,
    start_s: int | None = None,
    seed: int,
    days: int | None = None,
    scale: float | None = None,
    accesses: int | None = None,
) -> WorkloadConfig:
    """The config of `scenario`, a name in conf/workloads or a TOML file, with the others over it.

    `scale` multiplies accesses and files; `accesses` chooses it. Raises ConfigError.
    """
    if scale is not None and accesses is not None:
        raise ConfigError("--accesses", "determines the scale already; leave --scale out")
    if accesses is not None and not 0 < accesses <= MAX_ACCESSES:
        raise ConfigError("--accesses", f"must be from 1 to {MAX_ACCESSES}")
    changes: dict[str, Any] = {"seed": seed, "days": days, "scale": scale}
    if start_s is not None:
        changes["start"] = dt.datetime.fromtimestamp(start_s, dt.UTC)
    values = _scenario(scenario) | {key: value for key, value in changes.items() if value is not None}
    config = WorkloadConfig.from_mapping(values, where=scenario)
    if accesses is None:
        return config
    usual = config.growth * sum(category.accesses for category in config.categories)
    return WorkloadConfig.from_mapping(values | {"scale": accesses / usual}, where=scenario)


def label(config: WorkloadConfig) -> str:
    """What generated data is called on screens and pages."""
    first, last = (day_label(config.start_s + day * DAY_S) for day in (0, config.days - 1))
    return f"reads of {', '.join(config.sites)}, {first} to {last}, seed {config.seed}"


def _scenario(scenario: str) -> dict[str, Any]:
    if scenario.endswith(".toml") and Path(scenario).exists():
        return read_file(Path(scenario))
    known = {
        file.name.removesuffix(".toml"): file
        for file in resources.files("conf").joinpath("workloads").iterdir()
    }
    if scenario not in known:
        raise ConfigError("--scenario", f"there is no {scenario!r}; give a name in conf/workloads or a file")
    return read_toml(scenario, known[scenario].read_text(encoding="utf-8"))


def _write_trace(workload: Workload, out: Path) -> tuple[Path, Path]:
    out.mkdir(parents=True, exist_ok=True)
    accesses, files = out / "accesses.parquet", out / "files.parquet"
    marks = {GENERATED: label(workload.config)}
    _write_parquet(workload.access_slices(), accesses, marks)
    _write_parquet(workload.file_slices(), files, marks)
    return accesses, files


def _write_parquet(tables: Iterator[pa.Table], path: Path, marks: dict[str, str]) -> None:
    """Write one row group per table; the file appears under its name when it is complete."""
    first = next(tables)
    coded = [field.name for field in first.schema if pa.types.is_dictionary(field.type)]
    with (
        replaced(path) as draft,
        pq.ParquetWriter(
            draft, first.schema.with_metadata(marks), compression="zstd", use_dictionary=coded
        ) as writer,
    ):
        writer.write_table(first, row_group_size=ROWS_AT_ONCE)
        for table in tables:
            writer.write_table(table, row_group_size=ROWS_AT_ONCE)


def _write_raw(workload: Workload, out: Path) -> tuple[Path, Path]:
    (out / "traces").mkdir(parents=True, exist_ok=True)
    ends = workload.config.start_s + np.arange(workload.config.days + 1) * DAY_S
    with contextlib.ExitStack() as written:
        drafts = [written.enter_context(replaced(path)) for path in _of_days(workload.config, out)]
        for reads in workload.access_slices(raw=True):
            at = reads["accessed_at"].cast(pa.int64()).to_numpy()
            edges = np.searchsorted(at, ends * 1_000_000)
            for draft, begin, end in zip(drafts, edges[:-1], edges[1:], strict=True):
                if end > begin:
                    _append(_traces(reads.slice(begin, end - begin).to_pandas()), draft)
    with replaced(out / "files.jsonl") as listing:
        for files in workload.file_slices():
            _append(_catalogue(files.to_pandas()), listing)
    return out / "traces" / "traces.*.jsonl", out / "files.jsonl"


def _of_days(config: WorkloadConfig, out: Path) -> list[Path]:
    days = [day_label(config.start_s + day * DAY_S) for day in range(config.days)]
    return [out / "traces" / f"traces.{day}.jsonl" for day in days]


def _traces(reads: pd.DataFrame) -> pd.DataFrame:
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
            "dataset": reads["dataset"].astype(str).str.partition(":")[2],
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


def _catalogue(files: pd.DataFrame) -> pd.DataFrame:
    parent = files["dataset"].astype(str).str.partition(":")
    return pd.DataFrame(
        {
            "parent_scope": parent[0],
            "parent_name": parent[2],
            "scope": files["scope"],
            "name": files["name"],
            "bytes": files["size_bytes"],
            "created_at": _unix(files["created_at"]),
            "rses": [[origin] for origin in files["origin"]],
        }
    )


def _unix(at: pd.Series) -> pd.Series:
    return at.astype("int64") / 1e6


def _append(rows: pd.DataFrame, path: Path) -> None:
    with path.open("a", encoding="utf-8") as stream:
        rows.to_json(stream, orient="records", lines=True, double_precision=6)
