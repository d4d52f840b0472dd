"""Step `predict`: every horizon's predictions for the candidates at given as_ofs, and their drift."""

import dataclasses
from collections.abc import Sequence

from features.common.errors import ModelError, ServiceError, StaleInputError
from features.common.times import DAY_S, parse_as_of
from features.results import DRIFT
from features.schema import PREDICTIONS
from features.spec import FeatureSpec
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import Key, MomentKey
from jobs.ground.store.tables import Partition, Snapshot, Tables
from jobs.loop.train.engines import Engines, Written, check_on_grid, written
from jobs.loop.train.features import feature_sample
from jobs.loop.train.ready import check_features
from jobs.loop.trainings import promoted_models, registry, trained_versions
from models.learning.frame import arrow_matrix
from models.parallel import map_parallel
from models.serving.bundle import RegionModels
from models.serving.drift import Drift, drifts
from models.serving.mlflow_session import patiently
from models.serving.versions import CHAMPION

DRIFT_ROWS = 20_000
"""Rows per as_of that are compared with training; the PSI of so many is exact to about 0.001."""
N_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Predicted(Written):
    """The predictions table after the step; `alarms`: for the operator."""

    model_version: str
    alarms: tuple[str, ...]


def run(settings: Settings, *, as_ofs: Sequence[int], alias: str | None = None) -> Predicted:
    """Replace the predictions at every as_of (seconds since 1970), and the drift of the scored rows.

    The models are those of `alias`, by default of the first alias in `[mlflow] serve` that exists; a champion
    is the one that the table promotions names. A second run changes nothing. Without usable models there are
    no predictions, and so no plan: raises InputError (an as_of off the grid), StaleInputError (no features at
    an as_of, no models, or too old ones), ModelError (models of other settings, trained on data later than an
    as_of, or a champion that was not promoted), ServiceError.
    """
    spec, region, tables = settings.features.spec, settings.region.name, Tables.of(settings)
    check_on_grid(as_ofs, spec.cycle_s)
    aliases = settings.mlflow.serve if alias is None else (alias,)
    features = tables.snapshot(spec.features_table)
    keys = check_features(features, region, as_ofs)
    try:
        champion = promoted_models(tables, region=region).get(CHAMPION)
        trained = trained_versions(tables, region=region)
        digests = {version: files.digest for version, files in trained.items()}
        models = patiently(
            lambda: registry(settings.mlflow).load(region, aliases, champion=champion, digests=digests),
            patience_s=settings.mlflow.patience,
        )
        models.bundle.check(spec=spec, region=region)
        for as_of in as_ofs:
            models.bundle.check_time(as_of, max_age_s=settings.training.max_age)
        models = models.only(spec.horizons_s)
    except (ModelError, ServiceError, StaleInputError) as error:
        consequence = f"no predictions at {keys[0].as_of}, so no plan: caches run plain LRU"
        raise type(error)(f"{consequence}. {error}") from error
    base = tables.head(PREDICTIONS)
    partitions: dict[Key, Partition] = {key: features.partitions[key] for key in keys}
    engines = Engines.of(settings)
    if engines.is_local(sum(part.n_rows for part in partitions.values())):
        pieces = ((key, models.table(features.rows_of([key]), map_parallel)) for key in keys)
        snapshot = tables.replace_each(PREDICTIONS, pieces, cover=keys, base=base)
    else:
        from jobs.loop.train.spark_engine import staged  # noqa: PLC0415  Spark is loaded where it is used

        files = staged(engines.spark(), tables, features, partitions, models)
        snapshot = tables.commit(PREDICTIONS, files, cover=keys, base=base)
    alarms = _watch(tables, features, keys, models, spec)
    done = written(snapshot, as_ofs)
    return Predicted(**dataclasses.asdict(done), model_version=models.version, alarms=alarms)


def _watch(
    tables: Tables, features: Snapshot, keys: Sequence[MomentKey], models: RegionModels, spec: FeatureSpec
) -> tuple[str, ...]:
    """Write the drift of every as_of; an alarm per as_of with drifted columns, from a day after the training.

    Before, one moment differs from the days that were trained on by its hour and weekday, not by a change.
    """
    alarms = []
    for key in keys:
        if not features.partitions[key].n_rows:
            continue
        drifts = _drift(models, features, key, spec)
        is_new = parse_as_of(key.as_of) - models.bundle.until_s < DAY_S
        drifted = [drift for drift in drifts if drift.drifted and not is_new]
        rows: list[dict[str, object]] = [
            {**dataclasses.asdict(drift), "drifted": drift in drifted, "model_version": models.version}
            for drift in drifts
        ]
        tables.replace_rows(DRIFT, rows, key)
        if drifted:
            worst = ", ".join(f"{drift.column} {drift.psi:.2f}" for drift in drifted[:N_NAMED])
            alarms.append(
                f"{key.as_of}: {len(drifted)} of {len(drifts)} columns have drifted from training "
                f"(PSI: {worst}); see the table drift, and train again if it lasts"
            )
    return tuple(alarms)


def _drift(models: RegionModels, features: Snapshot, key: MomentKey, spec: FeatureSpec) -> list[Drift]:
    bundle, share = models.bundle, DRIFT_ROWS / features.partitions[key].n_rows
    sample = feature_sample(features, key, spec=spec, share=share)
    if not sample.num_rows:
        return []
    matrix = arrow_matrix(sample.combine_chunks().to_batches()[0], bundle.vocabulary, bundle.columns)
    measured = drifts(bundle.spread, {name: matrix[:, i] for i, name in enumerate(bundle.columns)})
    for model, probability in models.probabilities(matrix):
        name = f"probability_{model.within}"
        measured += drifts({name: model.scores}, {name: probability})
    return sorted(measured, key=lambda drift: (-drift.psi, drift.column))
