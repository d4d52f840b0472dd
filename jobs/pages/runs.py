"""Comparisons of policies as runs in MLflow: of evaluations and replays.

A comparison is one run with its page and table as artifacts, and a nested run for each policy, so that
policies and comparisons are compared by the same names of figures: `byte_gap_closed/10pct`, or `…/50TB` where
capacities were asked for in bytes.
"""

import dataclasses
import math
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from features.common.errors import without_login
from features.common.units import bytes_label
from features.results import LRU
from jobs.ground.settings.tree import MlflowSettings
from jobs.ground.text import Row
from jobs.pages.verdicts import verdict
from models.serving.mlflow_session import connect, patiently, service_errors
from models.serving.runs import Place, Run, code_version, write
from models.serving.spool import texts
from replay.comparison import BOUND

_GAPS = ("byte_gap_closed", "byte_gap_closed_lower", "byte_gap_closed_upper")
_FIGURES = (
    *_GAPS,
    *("byte_hit_ratio", "hit_ratio", "wan_bytes", "prefetch_bytes", "wasted_bytes", "core_hours"),
)
_FOLDER, _FILES = "files", ("page.html", "table.csv")


def comparison(
    name: str,
    kind: str,
    rows: Sequence[Row],
    capacity: str,
    *,
    params: Mapping[str, object],
    tags: Mapping[str, str],
) -> Run:
    """The run of a comparison, with one nested per policy.

    Its own figures: the mean share of the gap that each policy closed, and the share at each capacity with
    its bounds, for example `s3fifo/byte_gap_closed/10pct`; not of LRU and the bound, which are 0 and 1.

    `rows`: one per capacity and policy, with the columns of an evaluation's or a replay's; `capacity`: that
    of the capacities as they were asked for.
    """
    params = {key: value for key, value in params.items() if value not in ("", None)}
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row["policy"]), []).append(row)
    children = [
        Run(policy, "policy", texts({**params, "policy": policy}), dict(tags), figures(of, capacity))
        for policy, of in groups.items()
    ]
    capacities = sorted({row[capacity] for row in rows})
    # MLflow allows no `+` in the name of a figure.
    competing = {policy.replace("+", "_"): of for policy, of in groups.items() if policy not in (LRU, BOUND)}
    metrics = dict[str, float]()
    for policy, of in competing.items():
        if closed := [row["byte_gap_closed"] for row in of if row["byte_gap_closed"] is not None]:
            metrics[f"mean_byte_gap_closed/{policy}"] = sum(closed) / len(closed)
        metrics |= figures(of, capacity, f"{policy}/", _GAPS)
    sizes = ", ".join(at_capacity(capacity, size) for size in capacities)
    about = {**params, "capacities": sizes, **code_version()}
    says = verdict(rows, capacity)
    return Run(name, kind, texts(about), dict(tags), metrics, children=tuple(children), says=says)


def figures(
    rows: Sequence[Row], capacity: str, prefix: str = "", names: Sequence[str] = _FIGURES
) -> dict[str, float]:
    """The figures of one policy at each capacity, by their names in MLflow; those not known are left out."""
    named = {
        f"{prefix}{name}/{at_capacity(capacity, row[capacity])}": row.get(name)
        for name in names
        for row in rows
    }
    return {name: float(value) for name, value in named.items() if value is not None and math.isfinite(value)}


def at_capacity(capacity: str, size: float) -> str:
    """A value of the column `capacity` as a part of a figure's name, for example `50TB` or `10pct`."""
    return bytes_label(int(size)) if capacity == "capacity_bytes" else f"{100 * size:.4g}pct"


def keep(mlflow: MlflowSettings, run: Run, *, made_by: str, export: Callable[[Path], None]) -> str:
    """Write `run` into MLflow with its page and table, as `export` writes each; return its id.

    Raises ServiceError.
    """
    written_id = uuid.uuid4().hex

    def attempt(root: Path) -> str:
        client, experiment_id = connect(mlflow.uri, mlflow.artifacts, mlflow.experiment)
        place = Place(client, mlflow.uri, experiment_id, root)
        with service_errors(mlflow.uri):
            with_files = dataclasses.replace(run, folder=_FOLDER)
            return write(place, with_files, written_id=written_id, made_by=made_by).run_id

    with tempfile.TemporaryDirectory(prefix="cachecast-run-") as scratch:
        root = Path(scratch)
        (root / _FOLDER).mkdir()
        for file in _FILES:
            export(root / _FOLDER / file)
        return patiently(lambda: attempt(root), patience_s=mlflow.patience)


def where(mlflow: MlflowSettings, run_id: str) -> str:
    """The page of a run, and how it is served where MLflow is only a database. Raises ServiceError."""
    _, experiment_id = connect(mlflow.uri, mlflow.artifacts, mlflow.experiment)
    at, page = without_login(mlflow.uri), f"#/experiments/{experiment_id}/runs/{run_id}"
    if at.startswith("http"):
        return f"{at.rstrip('/')}/{page}"
    return f"http://127.0.0.1:5000/{page}, served by `mlflow ui --backend-store-uri {at}`"
