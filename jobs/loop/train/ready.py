"""What features, a training and predictions need, checked before Spark is even imported."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from features.common.errors import StaleInputError
from features.common.times import as_of_label, day_label, parse_as_of
from features.common.units import duration_label
from features.schema import ACCESSES, PREDICTIONS, Table
from features.spec import FeatureSpec
from jobs.ground.settings.tree import Settings, TrainingSettings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.schema_check import no_access
from jobs.ground.store.tables import Snapshot
from jobs.loop.train.engines import RegionData, check_on_grid
from models.serving.versions import model_name, no_model

_SQLITE = "sqlite:///"


def to_compute(settings: Settings, *, as_ofs: Sequence[int]) -> None:
    """Raise unless features can be computed: StaleInputError without accesses that they look back on."""
    data = RegionData.of(settings)
    check_on_grid(as_ofs, data.spec.cycle_s)
    _check_engines(data, data.spec.features_table)
    accesses = data.tables.snapshot(ACCESSES)
    looks_back_s = max(data.spec.candidate_s, data.spec.active_dataset_s)
    days = accesses.select(since=day_label(min(as_ofs) - looks_back_s), until=day_label(max(as_ofs)))
    if not any(part.n_rows for part in days.values()):
        raise no_access(accesses, first_s=min(as_ofs), last_s=max(as_ofs), before_s=looks_back_s)


def to_train(settings: Settings, *, until_s: int) -> None:
    """Raise StaleInputError unless there are features, and a label of them is known by `until_s`."""
    data = RegionData.of(settings)
    spec, region = data.spec, data.region
    _check_engines(data, spec.labels_table)
    data.tables.snapshot(ACCESSES)
    features = data.tables.snapshot(spec.features_table)
    computed = [
        parse_as_of(key[1]) for key, part in features.partitions.items() if key[2] == region and part.n_rows
    ]
    if not computed:
        raise StaleInputError(f"there are no features of region {region!r}; run `cachecast features` first")
    soonest_s = min(spec.horizons_s)
    if min(computed) + soonest_s > until_s:
        raise StaleInputError(
            f"no label is known by {as_of_label(until_s)}, not even within {duration_label(soonest_s)}: the "
            f"first features are of {as_of_label(min(computed))}; train later, or run `cachecast features` "
            "for earlier days"
        )


def to_predict(settings: Settings, *, as_ofs: Sequence[int], alias: str | None = None) -> None:
    """Raise unless candidates can be scored: StaleInputError without features or without any model."""
    data = RegionData.of(settings)
    check_on_grid(as_ofs, data.spec.cycle_s)
    _check_engines(data, PREDICTIONS)
    check_features(data.tables.snapshot(data.spec.features_table), data.region, as_ofs)
    aliases = settings.mlflow.serve if alias is None else (alias,)
    # MLflow's database, if it is on this machine: loading MLflow to ask it takes seconds.
    uri = settings.mlflow.uri
    database = Path(uri.removeprefix(_SQLITE))
    if uri.startswith(_SQLITE) and _has_none(database, model_name(data.region), aliases):
        raise no_model(data.region, aliases)


def _check_engines(data: RegionData, written: Table) -> None:
    """Raise unless `written` can be written, and Spark can start if it may be needed."""
    data.tables.check_writable(written)
    data.engines.check(data.tables)


def learned_since_s(spec: FeatureSpec, training: TrainingSettings, *, at_s: int) -> int:
    """The first accesses that matter to a training at `at_s`."""
    return at_s - max(spec.history_s, training.span)


def check_features(features: Snapshot, region: str, as_ofs: Sequence[int]) -> list[MomentKey]:
    """The partitions of `features` at `as_ofs`. Raises StaleInputError naming the first that is missing."""
    keys = [MomentKey.at(as_of, region) for as_of in sorted(set(as_ofs))]
    if missing := [key.as_of for key in keys if key not in features.partitions]:
        known = sorted(key[1] for key in features.partitions if key[-1] == region)
        latest = f"the latest are at {known[-1]}" if known else f"region {region!r} has none"
        raise StaleInputError(
            f"there are no features at {missing[0]}; {latest}: run `cachecast features` for it first"
        )
    return keys


def _has_none(database: Path, name: str, aliases: Sequence[str]) -> bool:
    """Whether it is clear that the model has none of the aliases; a database that is not there has none."""
    if not database.exists():
        return True
    uri = f"{database.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            rows = connection.execute("SELECT alias FROM registered_model_aliases WHERE name = ?", (name,))
            return {alias for (alias,) in rows}.isdisjoint(aliases)
    except sqlite3.Error:
        return False  # of another version, locked, or not to be opened: MLflow itself answers
