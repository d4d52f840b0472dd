"""What a training leaves in MLflow, and the figures it reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from features.errors import ModelError
from features.spec import FeatureSpec
from features.units import duration_label
from models.bundle import Bundle
from models.compare import Evaluation, best
from models.fit import CalibratedModel, fit_calibrated
from models.frame import HorizonParts, Known
from models.learners import FittedLightGBM, FittedSklearn, Learner
from models.registry import CANDIDATE, Recorded, Registry, TrainedModel

_EXAMPLE_ROWS = 5


@dataclasses.dataclass(frozen=True)
class ModelReport:
    """One model at one horizon on the test days; None where a figure does not exist.

    `registered`: `name/version` where this one became the candidate of its horizon.
    """

    model: str
    within: str
    horizon_s: int
    auc: float | None
    average_precision: float | None
    log_loss: float | None
    brier: float | None
    calibration_error: float | None
    n_rows: int
    run_id: str
    registered: str | None


def record(
    registry: Registry,
    evaluations: Sequence[Evaluation],
    part: HorizonParts,
    *,
    spec: FeatureSpec,
    region: str,
    tags: Mapping[str, str],
) -> list[ModelReport]:
    """A nested run per evaluation, and one for what is served: the best way to learn, fitted on all rows.

    Only the served model is registered; the others show what it was chosen from, on days none had seen.
    """
    within = duration_label(part.train.horizon_s)
    chosen = best(evaluations)
    if chosen is None or chosen.learner is None:
        raise ModelError(f"too few days to validate a model of {within}; compute features for more")
    reports = []
    for evaluation in evaluations:
        recorded = registry.record(
            f"{evaluation.name} {within}",
            params={"model": evaluation.name, "horizon": within, "region": region, **evaluation.knobs},
            tags=tags,
            quality=evaluation.quality,
            metrics=_training_metrics(evaluation.model, part.train),
            model=_trained(evaluation.model, part.train, spec=spec, region=region),
        )
        version = None
        if evaluation is chosen:
            version = _serve(registry, chosen.learner, part.everything, spec=spec, region=region, tags=tags)
        reports.append(_report(evaluation, part.train.horizon_s, recorded, version))
    return reports


def _serve(
    registry: Registry,
    learner: Learner,
    known: Known,
    *,
    spec: FeatureSpec,
    region: str,
    tags: Mapping[str, str],
) -> str:
    """Fit `learner` on everything known and make it the candidate; its `name/version`."""
    model = fit_calibrated(learner, known.sample, horizon_s=known.horizon_s)
    trained = _trained(model, known, spec=spec, region=region)
    if trained is None:
        raise ModelError(f"a model of {learner.name} cannot be kept in MLflow; train with another learner")
    within = duration_label(known.horizon_s)
    recorded = registry.record(
        f"candidate {within}",
        params={"model": model.name, "horizon": within, "region": region, **learner.knobs},
        tags=tags,
        quality=None,
        metrics=_training_metrics(model, known),
        model=trained,
    )
    return registry.register(trained.bundle, recorded, CANDIDATE)


def _trained(
    model: CalibratedModel | None, known: Known, *, spec: FeatureSpec, region: str
) -> TrainedModel | None:
    if model is None or not isinstance(model.scorer, FittedLightGBM | FittedSklearn):
        return None
    bundle = Bundle(
        region=region,
        horizon_s=known.horizon_s,
        spec=spec,
        columns=tuple(known.sample.x.columns),
        vocabulary=known.vocabulary,
        learner=model.name,
        flavour=model.scorer.flavour,
        calibration=model.calibration,
        reads=model.reads,
        trained_until_s=known.until_s,
    )
    return TrainedModel(bundle, model.scorer, known.sample.x.head(_EXAMPLE_ROWS))


def _training_metrics(model: CalibratedModel | None, known: Known) -> dict[str, float]:
    found = {"train_rows": float(len(known.sample)), "train_positive_share": float(known.sample.y.mean())}
    if model and model.validation_log_loss is not None:
        found["validation_log_loss"] = model.validation_log_loss
    return found


def _report(evaluation: Evaluation, horizon_s: int, recorded: Recorded, version: str | None) -> ModelReport:
    q = evaluation.quality
    return ModelReport(
        model=evaluation.name,
        within=duration_label(horizon_s),
        horizon_s=horizon_s,
        auc=_finite(q.auc),
        average_precision=_finite(q.average_precision),
        log_loss=_finite(q.log_loss),
        brier=_finite(q.brier),
        calibration_error=_finite(q.calibration_error),
        n_rows=q.n_rows,
        run_id=recorded.run_id,
        registered=version,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
