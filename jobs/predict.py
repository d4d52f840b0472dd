"""Step `predict`: every horizon's predictions for the candidates at given as_ofs."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from features.errors import ModelError, StaleInputError
from features.schema import PREDICTIONS
from features.spec import FeatureSpec
from features.times import as_of_label, day_label
from features.units import duration_label
from jobs.spark_io import read_partitions, replace
from jobs.tables import Snapshot, Tables
from jobs.train import MlflowKnobs
from models.registry import CANDIDATE, Registry
from models.scoring import ServedModel, score_spark


def run(
    spark: SparkSession,
    tables: Tables,
    *,
    spec: FeatureSpec,
    region: str,
    as_ofs: Sequence[int],
    mlflow: MlflowKnobs,
    alias: str = CANDIDATE,
) -> Snapshot:
    """Replace the predictions at every as_of (seconds since 1970) by those of the models at `alias`.

    A second run changes nothing. Raises StaleInputError (no features at an as_of, no model), ModelError (a
    model of other settings, or one that has seen later data than an as_of), ServiceError (MLflow is away).
    """
    features = tables.snapshot(spec.features_table)
    base = tables.head(PREDICTIONS)
    keys = [(day_label(as_of), as_of_label(as_of), region) for as_of in sorted(set(as_ofs))]
    if missing := [key[1] for key in keys if key not in features.partitions]:
        raise StaleInputError(f"no features at {missing[0]}; run `cachecast features` for it first")
    registry = Registry(mlflow.uri, mlflow.artifacts, mlflow.experiment)
    models = [registry.load(region, horizon_s, alias) for horizon_s in spec.horizons_s]
    for model in models:
        check(model, spec=spec, region=region, as_of_s=min(as_ofs))
    rows = read_partitions(spark, features, {key: features.partitions[key] for key in keys})
    return replace(score_spark(rows, models), tables, PREDICTIONS, cover=keys, base=base)


def check(model: ServedModel, *, spec: FeatureSpec, region: str, as_of_s: int) -> None:
    """Raise ModelError unless `model` fits `spec` and `region`, and has seen nothing after `as_of_s`."""
    bundle = model.bundle
    bundle.check(spec=spec, region=region)
    if bundle.trained_until_s > as_of_s:
        raise ModelError(
            f"model {model.version} ({duration_label(bundle.horizon_s)}) was trained on data until "
            f"{as_of_label(bundle.trained_until_s)}, after {as_of_label(as_of_s)}: its predictions there "
            "would know the future; predict later as_ofs, or train on earlier ones"
        )
