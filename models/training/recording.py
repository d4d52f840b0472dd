"""What a training keeps of every model it compared, and the figures it reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from features.errors import ModelError
from features.units import duration_label
from models.evaluation.figures import calibration_figure, precision_recall_figure, roc_figure
from models.learning.fit import CalibratedModel, fit_calibrated
from models.learning.frame import HorizonParts, Known, Sample
from models.learning.learners import Fitted, FittedLightGBM, FittedSklearn, Learner
from models.serving.bundle import HorizonModel
from models.serving.drift import reference
from models.serving.spool import Spool
from models.training.compare import Evaluation, best
from models.training.slices import Holding, Slice

_EXAMPLE_ROWS = 5
_NAMES = {"auc", "average_precision", "log_loss", "brier", "calibration_error"}


@dataclasses.dataclass(frozen=True)
class ModelReport:
    """One model at one horizon on the test days; None where a figure does not exist.

    `serves`: whether the region's candidate uses this way to learn at this horizon. `run_id`: MLflow's, once
    it has the training.
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
    serves: bool
    run_id: str | None


def record(
    spool: Spool,
    evaluations: Sequence[Evaluation],
    part: HorizonParts,
    *,
    region: str,
    tags: Mapping[str, str],
) -> tuple[list[ModelReport], HorizonModel]:
    """Keep a run per evaluation, and the model that serves: the best way to learn, fitted on all rows.

    The best has the least log loss on validation rows; the test days only show how good it is. Raises
    ModelError if nothing could be validated.
    """
    within = duration_label(part.train.horizon_s)
    chosen = best(evaluations)
    if chosen is None or chosen.learner is None:
        raise ModelError(f"too few days to validate a model of {within}; compute features for more")
    for evaluation in evaluations:
        spool.add(
            f"{evaluation.name} {within}",
            params={"model": evaluation.name, "horizon": within, "region": region, **evaluation.knobs},
            tags={**tags, "serves": str(evaluation is chosen).lower()},
            metrics={**_test_metrics(evaluation), **_training_metrics(evaluation.model, part.train)},
            figures=_figures(f"{evaluation.name} {within}", evaluation, part.test),
            fitted=portable(evaluation.model),
            example=_example(part.train.sample),
        )
    reports = [_report(evaluation, part.train.horizon_s, evaluation is chosen) for evaluation in evaluations]
    return reports, _serve(spool, chosen.learner, part.everything)


def portable(model: CalibratedModel | None) -> Fitted | None:
    """The model in a flavour that can travel, if it has one."""
    if model is None or not isinstance(model.scorer, FittedLightGBM | FittedSklearn):
        return None
    return model.scorer


def _serve(spool: Spool, learner: Learner, known: Known) -> HorizonModel:
    """Fit `learner` on everything known and keep it in the bundle."""
    model = fit_calibrated(learner, known.sample, horizon_s=known.horizon_s)
    fitted = portable(model)
    if fitted is None:
        raise ModelError(f"a model of {learner.name} cannot be kept in MLflow; train with another learner")
    spool.add_to_bundle(duration_label(known.horizon_s), fitted, _example(known.sample))
    return horizon_model(model, known, fitted.flavour)


def horizon_model(model: CalibratedModel, known: Known, flavour: str) -> HorizonModel:
    """What a bundle says of `model`, fitted on `known`."""
    probability, _ = model.predict(known.sample.x)
    return HorizonModel(
        horizon_s=known.horizon_s,
        learner=model.name,
        flavour=flavour,
        calibration=model.calibration,
        reads=model.reads,
        trained_until_s=known.until_s,
        scores=reference(probability, known.sample.as_of),
    )


def _example(sample: Sample) -> pd.DataFrame:
    return sample.x.head(_EXAMPLE_ROWS)


def _figures(title: str, evaluation: Evaluation, test: Sample) -> dict[str, Figure]:
    quality, found = evaluation.quality, {}
    if quality.reliability:
        found["calibration.png"] = calibration_figure(title, quality)
    if math.isfinite(quality.auc):
        found["roc.png"] = roc_figure(title, test.y, evaluation.scores, quality)
        found["precision_recall.png"] = precision_recall_figure(title, test.y, evaluation.scores, quality)
    return found


def _test_metrics(evaluation: Evaluation) -> dict[str, float]:
    """`test_auc` and the like; `byte/cold/auc`; `byte/at_10pct/precision`."""
    found = {f"test_{name}": value for name, value in evaluation.quality.numbers.items()}
    for one in evaluation.slices:
        found |= {f"{_place(one)}/{name}": v for name, v in one.quality.numbers.items() if name in _NAMES}
    for held in evaluation.holdings:
        place = f"{held.weighting}/at_{held.capacity_fraction:.0%}".replace("%", "pct")
        figures = {"precision": held.precision, "recall": held.recall}
        found |= {f"{place}/{name}": value for name, value in figures.items() if math.isfinite(value)}
    return found


def _place(one: Slice) -> str:
    return f"{one.weighting}/{''.join(c if c.isalnum() else '_' for c in one.part)}"


def _training_metrics(model: CalibratedModel | None, known: Known) -> dict[str, float]:
    found = {"train_rows": float(len(known.sample)), "train_positive_share": float(known.sample.y.mean())}
    if model and model.validation_log_loss is not None:
        found["validation_log_loss"] = model.validation_log_loss
    return found


def _report(evaluation: Evaluation, horizon_s: int, serves: bool) -> ModelReport:
    q = evaluation.quality
    return ModelReport(
        model=evaluation.name,
        within=duration_label(horizon_s),
        horizon_s=horizon_s,
        auc=finite(q.auc),
        average_precision=finite(q.average_precision),
        log_loss=finite(q.log_loss),
        brier=finite(q.brier),
        calibration_error=finite(q.calibration_error),
        n_rows=q.n_rows,
        serves=serves,
        run_id=None,
    )


def slice_row(evaluation: Evaluation, one: Slice, horizon_s: int) -> dict[str, object]:
    """A row of the table model_slices."""
    q = one.quality
    return {
        "model": evaluation.name,
        "horizon_s": horizon_s,
        "weighting": one.weighting,
        "part": one.part,
        **{name: finite(getattr(q, name)) for name in sorted(_NAMES)},
        "positive_share": q.positive_share,
        "n_rows": q.n_rows,
    }


def holding_row(evaluation: Evaluation, held: Holding, horizon_s: int) -> dict[str, object]:
    """A row of the table model_holdings."""
    figures = {name: finite(getattr(held, name)) for name in ("precision", "recall", "reads_held")}
    where = {"weighting": held.weighting, "capacity_fraction": held.capacity_fraction}
    return {"model": evaluation.name, "horizon_s": horizon_s, **where, **figures}


def finite(value: float) -> float | None:
    """`value`, or None where it does not exist (NaN)."""
    return value if math.isfinite(value) else None
