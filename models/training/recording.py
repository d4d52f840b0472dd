"""The record of a training: a run per model compared, the models that serve, rows of figures, and plots."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve, roc_curve

from features.common.units import duration_label
from models.evaluation.metrics import quality_bounds
from models.learning.baselines import Recency
from models.learning.fit import CalibratedModel, fit_calibrated, refit
from models.learning.frame import HorizonParts, Known, Sample
from models.learning.learners import Trees
from models.serving.bundle import HorizonModel
from models.serving.drift import reference
from models.serving.spool import Spool
from models.training.compare import Evaluation, best

_NAMES = {"auc", "average_precision", "log_loss", "brier", "calibration_error"}


@dataclasses.dataclass(frozen=True)
class ModelReport:
    """Figures of one model at one horizon on the test days; None where a figure is undefined.

    `serves`: whether the region's candidate uses this learner, or recency, at this horizon. `run_id`: of the
    MLflow run; None until the training is uploaded. `bounds`: `quality_bounds`, of the model that serves.
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
    bounds: dict[str, float] = dataclasses.field(default_factory=dict)


def record(
    spool: Spool,
    evaluations: Sequence[Evaluation],
    serving: CalibratedModel,
    part: HorizonParts,
    *,
    region: str,
    tags: Mapping[str, str],
) -> tuple[list[ModelReport], HorizonModel]:
    """Keep a run with figures per evaluation, and `serving`, the model that serves: see `to_serve`."""
    within = duration_label(part.train.horizon_s)
    best_one = best(evaluations)
    bounds = {}
    if part.test.dataset is not None:
        bounds = quality_bounds(best_one.quality, part.test.y, best_one.scores, part.test.dataset)
    for evaluation in evaluations:
        learner, is_best = evaluation.learner, evaluation is best_one
        metrics = {**_test_metrics(evaluation), **_training_metrics(evaluation.model, part.train)}
        if is_best:
            metrics |= {f"test_{name}": value for name, value in bounds.items()}
        spool.add(
            f"{evaluation.name} {within}",
            params={"model": evaluation.name, "horizon": within, "region": region, **learner.knobs},
            tags={**tags, "serves": str(is_best).lower()},
            metrics=metrics,
            figures=_figures(f"{evaluation.name} {within}", evaluation, part.test),
            trees=trees_of(evaluation.model),
        )
    if (trees := trees_of(serving)) is not None:
        spool.add_to_bundle(part.train.horizon_s, trees)
    reports = [
        ModelReport(
            model=evaluated.name,
            within=within,
            horizon_s=part.train.horizon_s,
            **{name: finite(getattr(evaluated.quality, name)) for name in _NAMES},
            n_rows=evaluated.quality.n_rows,
            serves=evaluated is best_one,
            run_id=None,
            bounds=bounds if evaluated is best_one else {},
        )
        for evaluated in evaluations
    ]
    return reports, horizon_model(serving, part.everything)


def headline(reports: Sequence[ModelReport]) -> dict[str, float]:
    """The test figures of the models that serve, by their names in MLflow: `auc/1d`, `auc_lower/1d` …"""
    serving = [report for report in reports if report.serves]
    figures = {
        f"{name}/{report.within}": getattr(report, name)
        for name in ("auc", "average_precision", "calibration_error")
        for report in serving
    }
    bounds = {f"{name}/{report.within}": value for report in serving for name, value in report.bounds.items()}
    return {name: value for name, value in figures.items() if value is not None} | bounds


def trees_of(model: CalibratedModel | None) -> Trees | None:
    """The trees of `model`, if it has any of LightGBM's."""
    return model.scorer if model and isinstance(model.scorer, Trees) else None


def to_serve(evaluation: Evaluation, part: HorizonParts) -> CalibratedModel:
    """The learner of `evaluation`, or recency if none was learned, fitted on all rows. Raises ModelError."""
    everything = part.everything.sample
    if evaluation.model is None:
        return fit_calibrated(Recency(), everything, horizon_s=part.everything.horizon_s)
    return refit(evaluation.learner, evaluation.model, part.test, everything)


def horizon_model(model: CalibratedModel, known: Known) -> HorizonModel:
    """The bundle's entry for `model`, which was fitted on `known`."""
    return HorizonModel(
        horizon_s=known.horizon_s,
        learner=model.name,
        calibration=model.calibration,
        reads=model.reads,
        trained_until_s=known.until_s,
        scores=reference(model.predict(known.sample.x), known.sample.as_of),
        week=model.week,
    )


def _figures(title: str, evaluation: Evaluation, test: Sample) -> dict[str, Figure]:
    """Plots by the names of their files: the calibration of probabilities, a point per bin of equal mass.

    And, with both classes, the ROC, and precision against recall, with a line at the share that was read.
    """
    quality, scores, figures = evaluation.quality, evaluation.scores, dict[str, Figure]()
    if quality.reliability:
        name = f"{title}: calibration error {quality.calibration_error:.3f}"
        figures["calibration.png"], axes = _unit_square(name, "predicted probability", "observed share")
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        bins = quality.reliability
        axes.plot([b.predicted for b in bins], [b.observed for b in bins], marker="o")
    if math.isfinite(quality.auc):
        name = f"{title}: AUC {quality.auc:.3f}"
        figures["roc.png"], axes = _unit_square(name, "false positive rate", "true positive rate")
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        false_positive, true_positive, _ = roc_curve(test.y, scores)
        axes.plot(false_positive, true_positive)
        name = f"{title}: average precision {quality.average_precision:.3f}"
        figures["precision_recall.png"], axes = _unit_square(name, "recall", "precision")
        precision, recall, _ = precision_recall_curve(test.y, scores, drop_intermediate=True)
        axes.axhline(quality.positive_share, color="0.7", linewidth=1)
        axes.plot(recall, precision, drawstyle="steps-post")
    return figures


def _unit_square(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5, 5))
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y, xlim=(0, 1), ylim=(0, 1), title=title)
    return figure, axes


def _test_metrics(evaluation: Evaluation) -> dict[str, float]:
    """Metrics by their names in MLflow: `test_auc`, `byte/cold/auc`, `byte/at_10pct/precision` and so on."""
    metrics = {f"test_{name}": value for name, value in evaluation.quality.numbers.items()}
    for part in evaluation.slices:
        prefix = f"{part.weighting}/{''.join(c if c.isalnum() else '_' for c in part.part)}"
        metrics |= {f"{prefix}/{name}": v for name, v in part.quality.numbers.items() if name in _NAMES}
    for holding in evaluation.holdings:
        prefix = f"{holding.weighting}/at_{holding.capacity_fraction:.0%}".replace("%", "pct")
        figures = {"precision": holding.precision, "recall": holding.recall}
        metrics |= {f"{prefix}/{name}": value for name, value in figures.items() if math.isfinite(value)}
    return metrics


def _training_metrics(model: CalibratedModel | None, known: Known) -> dict[str, float]:
    metrics = {"train_rows": float(len(known.sample)), "train_positive_share": float(known.sample.y.mean())}
    if model and model.validation_log_loss is not None:
        metrics["validation_log_loss"] = model.validation_log_loss
    return metrics


def finite(value: float) -> float | None:
    """`value`, or None if it is not finite."""
    return value if math.isfinite(value) else None
