"""Step `train`: a model per horizon from the features and labels, judged on later days, kept in MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from features.errors import StaleInputError
from features.results import MODEL_METRICS, RELIABILITY
from features.spec import FeatureSpec
from features.times import as_of_label, day_label, parse_as_of
from features.units import duration_label
from jobs.console import Advance
from jobs.tables import Snapshot, Tables, read_partitions
from models.baselines import baselines
from models.compare import evaluate_baseline, evaluate_learner
from models.frame import horizon_parts, sampled
from models.learners import HistBoosting, Learner, LightGBM
from models.metrics import Quality
from models.provenance import code_version
from models.recording import ModelReport, record
from models.registry import Registry


class Knobs(Protocol):
    """The `[training]` table of the settings."""

    @property
    def max_rows(self) -> int: ...
    @property
    def test_share(self) -> float: ...
    @property
    def trees(self) -> int: ...
    @property
    def seed(self) -> int: ...


class MlflowKnobs(Protocol):
    """The `[mlflow]` table of the settings."""

    @property
    def uri(self) -> str: ...
    @property
    def artifacts(self) -> str: ...
    @property
    def experiment(self) -> str: ...


TrainingReport = list[ModelReport]


def run(
    tables: Tables,
    *,
    spec: FeatureSpec,
    region: str,
    training: Knobs,
    mlflow: MlflowKnobs,
    until_s: int,
    on_progress: Advance,
) -> TrainingReport:
    """Train, compare on the last `test_share` of the as_ofs, record all; serve the best, fitted on all.

    Only labels matured by `until_s` count. Of each horizon the learner with the least log loss on validation
    rows is fitted anew on all rows and gets the alias `candidate`. Figures also go to the tables
    model_metrics and reliability. Raises StaleInputError (no features or labels), ModelError (too few days),
    ServiceError (MLflow is away).
    """
    features, labels = tables.snapshot(spec.features_table), tables.snapshot(spec.labels_table)
    registry = Registry(mlflow.uri, mlflow.artifacts, mlflow.experiment)
    rows = _sample(features, labels, spec=spec, region=region, max_rows=training.max_rows, until_s=until_s)
    learners: list[Learner] = [
        LightGBM(trees=training.trees, seed=training.seed),
        HistBoosting(trees=training.trees, seed=training.seed),
    ]
    versions = {"features_snapshot": features.id, "labels_snapshot": labels.id, **code_version()}
    params = {"region": region, "until": as_of_label(until_s), "n_rows": len(rows), **_knobs(training)}
    n_steps = len(spec.horizons_s) * (len(learners) + 1)
    report: TrainingReport = []
    curves: dict[tuple[str, int], Quality] = {}
    with registry.training(f"{region} {as_of_label(until_s)}", params=params, tags=versions):
        for horizon_s in spec.horizons_s:
            part = horizon_parts(rows, spec, horizon_s=horizon_s, share=training.test_share, until_s=until_s)
            evaluations = [evaluate_baseline(b, part.test) for b in baselines(spec, horizon_s)]
            for learner in learners:
                on_progress(len(curves), n_steps, f"{learner.name} {duration_label(horizon_s)}")
                evaluations.append(evaluate_learner(learner, part.train, part.test))
                curves[learner.name, horizon_s] = evaluations[-1].quality
            on_progress(len(curves), n_steps, f"recording and serving {duration_label(horizon_s)}")
            report += record(registry, evaluations, part, spec=spec, region=region, tags=versions)
    _write(tables, report, curves, region=region, until_s=until_s)
    on_progress(n_steps, n_steps, "done")
    return report


def _sample(
    features: Snapshot, labels: Snapshot, *, spec: FeatureSpec, region: str, max_rows: int, until_s: int
) -> pd.DataFrame:
    """At most about `max_rows` rows of features ⋈ labels, as_of by as_of, with as_of in seconds.

    Features are float32: all that is held at a time is the sample and one as_of.
    """
    soonest = min(spec.horizons_s)
    chosen = {
        key: part
        for key, part in sorted(features.partitions.items())
        if key[2] == region and key in labels.partitions and parse_as_of(key[1]) + soonest <= until_s
    }
    n_rows = sum(part.n_rows for part in chosen.values())
    if not n_rows:
        raise StaleInputError(
            f"no features with labels matured by {as_of_label(until_s)}; "
            "run `cachecast features` for more days"
        )
    pieces = []
    for key, part in chosen.items():
        inputs = ["did", *spec.numeric_columns, *spec.categorical_columns]
        left = read_partitions(features, {key: part}, inputs)
        keep = sampled(left["did"].to_pylist(), key[1], max_rows / n_rows)
        targets = ["did", *spec.label_columns]
        right = read_partitions(labels, {key: labels.partitions[key]}, targets)
        frame: pd.DataFrame = left.filter(pa.array(keep)).to_pandas()
        frame = frame.merge(right.to_pandas(), how="inner", on="did", validate="one_to_one")
        frame = frame.astype(dict.fromkeys(spec.numeric_columns, np.float32)).sort_values("did")
        pieces.append(frame.assign(as_of_s=parse_as_of(key[1])))
    return pd.concat(pieces, ignore_index=True)


def _write(
    tables: Tables,
    report: TrainingReport,
    curves: Mapping[tuple[str, int], Quality],
    *,
    region: str,
    until_s: int,
) -> None:
    """Replace this training's rows in model_metrics and reliability."""
    where = {"day": day_label(until_s), "as_of": as_of_label(until_s), "region": region}
    names = MODEL_METRICS.column_names
    metrics = [{**{n: v for n, v in vars(row).items() if n in names}, **where} for row in report]
    bins = [
        {"model": model, "horizon_s": horizon_s, "bin": i, "predicted": b.predicted, "observed": b.observed}
        | {"n_rows": round(b.weight)}
        | where
        for (model, horizon_s), quality in curves.items()
        for i, b in enumerate(quality.reliability)
    ]
    tables.replace_arrow(MODEL_METRICS, pa.Table.from_pylist(metrics))
    tables.replace_arrow(RELIABILITY, pa.Table.from_pylist(bins))


def _knobs(training: Knobs) -> dict[str, float]:
    return {name: getattr(training, name) for name in ("max_rows", "test_share", "trees", "seed")}
