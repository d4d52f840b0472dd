"""Model versions: by the site's tables what was trained and what `promote` lets act, and MLflow's registry.

The tables are ours; in MLflow, whoever reaches it can exchange files and move an alias.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from features.common.errors import ServiceError, bounded, printable
from features.common.times import parse_as_of
from features.results import PROMOTIONS, TRAININGS
from features.schema import arrow_schema
from jobs.ground.settings.tree import MlflowSettings
from jobs.ground.store.commits import Key, MomentKey
from jobs.ground.store.tables import Tables, repeated_on_conflict
from models.serving.versions import CHAMPION, STEWARD, ModelVersion

if TYPE_CHECKING:
    from models.serving.registry import Registry

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[0-9]{1,12}")


class TrainedVersion(NamedTuple):
    """What is recorded of a training. `digest`: SHA-256 of its files; `until_s`: nothing later was used."""

    digest: str
    until_s: int


def trained_versions(tables: Tables, *, region: str) -> dict[str, TrainedVersion]:
    """The region's versions trained here, by name (`cachecast-emea/3`). Raises ServiceError."""
    try:
        columns = ["model_version", "model_digest", "as_of"]
        rows = tables.head(TRAININGS).rows(columns, owner=region).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ServiceError(f"the table trainings cannot be read: {error}") from None
    return {
        row["model_version"]: TrainedVersion(row["model_digest"], parse_as_of(row["as_of"])) for row in rows
    }


def as_trained(known: Mapping[str, TrainedVersion], version: str) -> ModelVersion:
    """The version with the digest that its training kept; with none if it is not `known`."""
    return ModelVersion(version, known[version].digest if version in known else None)


@repeated_on_conflict
def keep_training(tables: Tables, *, region: str, until_s: int, version: str, digest: str) -> None:
    """Add the files of a version to the table, in place of an earlier one of that name: MLflow began anew."""
    base, key = tables.head(TRAININGS), MomentKey.at(until_s, region)
    rows_by_key: dict[Key, list[dict[str, object]]] = {
        key: [{"model_version": version, "model_digest": digest}]
    }
    for where in base.select(owner=region):
        rows = base.rows_of([where]).to_pylist()
        others = [row for row in rows if row["model_version"] != version]
        if where == key or len(others) < len(rows):
            rows_by_key.setdefault(where, []).extend(others)
    schema = arrow_schema(TRAININGS)
    pieces = ((where, pa.Table.from_pylist(rows, schema)) for where, rows in rows_by_key.items())
    tables.replace_each(TRAININGS, pieces, cover=rows_by_key, base=base)


def promoted_models(tables: Tables, *, region: str) -> dict[str, ModelVersion]:
    """What the region's last decision lets act, by alias in MLflow. Raises ServiceError."""
    columns = ["champion", "champion_digest", "steward", "steward_digest"]
    try:
        rows = tables.newest(PROMOTIONS, owner=region).rows(columns).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ServiceError(f"the table promotions cannot be read: {error}") from None
    if len(rows) > 1:
        raise foreign_decision(f"{len(rows)} decisions at one time")
    return {
        alias: ModelVersion(checked_version(row[alias]), row[f"{alias}_digest"])
        for row in rows
        for alias in (CHAMPION, STEWARD)
        if row[alias] is not None
    }


def checked_version(version: str) -> str:
    """`version`, if it is written as `promote` writes one. Raises ServiceError."""
    if _VERSION.fullmatch(version) is None:
        raise foreign_decision(f"the version {printable(bounded(version, 80))!r}")
    return version


def foreign_decision(what: str) -> ServiceError:
    """The error about `what` in the table promotions is not of `promote`."""
    return ServiceError(
        f"the table promotions holds what no `promote` wrote: {what}; find out who writes to these tables, "
        "and restore the table"
    )


def unproven_because(tables: Tables, model: ModelVersion, *, region: str) -> str | None:
    """Why plans by `model` may not act by the table promotions; None: they may. Raises ServiceError."""
    champion = promoted_models(tables, region=region).get(CHAMPION)
    if champion is None:
        return f"the plan is by {model.version}, and no model was promoted yet"
    if model.version != champion.version:
        return f"the plan is by {model.version}, and the champion is {champion.version}"
    if model.digest is None or model.digest != champion.digest:
        return f"the plan is by {model.version}, but not by those files of it that were promoted"
    return None


def registry(mlflow: MlflowSettings) -> Registry:
    """The registry at the configured MLflow. Raises ServiceError if its server does not answer."""
    from models.serving.registry import Registry  # noqa: PLC0415  MLflow is loaded where it is asked

    return Registry(mlflow.uri, mlflow.artifacts, mlflow.experiment)


def awaited_registry(mlflow: MlflowSettings) -> Registry:
    """The same, tried again for `patience` seconds while the server is unavailable."""
    from models.serving.mlflow_session import patiently  # noqa: PLC0415

    return patiently(lambda: registry(mlflow), patience_s=mlflow.patience)
