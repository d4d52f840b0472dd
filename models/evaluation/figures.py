"""Plots of one model's quality, stored with its MLflow run."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve, roc_curve

from features.common.arrays import FloatArray
from models.evaluation.metrics import Quality


def calibration_figure(title: str, quality: Quality) -> Figure:
    """Observed share against predicted probability, one point per bin of equal mass."""
    figure, axes = _unit_square(
        f"{title}: calibration error {quality.calibration_error:.3f}",
        "predicted probability",
        "observed share",
    )
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    axes.plot(
        [b.predicted for b in quality.reliability], [b.observed for b in quality.reliability], marker="o"
    )
    return figure


def roc_figure(title: str, y: FloatArray, scores: FloatArray, quality: Quality) -> Figure:
    """True positive rate against false positive rate; needs both classes."""
    figure, axes = _unit_square(
        f"{title}: AUC {quality.auc:.3f}", "false positive rate", "true positive rate"
    )
    false_positive, true_positive, _ = roc_curve(y, scores)
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    axes.plot(false_positive, true_positive)
    return figure


def precision_recall_figure(title: str, y: FloatArray, scores: FloatArray, quality: Quality) -> Figure:
    """Precision against recall; the line is the share of rows that were read. Needs both classes."""
    figure, axes = _unit_square(
        f"{title}: average precision {quality.average_precision:.3f}", "recall", "precision"
    )
    precision, recall, _ = precision_recall_curve(y, scores, drop_intermediate=True)
    axes.axhline(quality.positive_share, color="0.7", linewidth=1)
    axes.plot(recall, precision, drawstyle="steps-post")
    return figure


def _unit_square(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5, 5))
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y, xlim=(0, 1), ylim=(0, 1), title=title)
    return figure, axes
