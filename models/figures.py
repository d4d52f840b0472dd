"""The plot that a model's run keeps."""

from __future__ import annotations

from matplotlib.figure import Figure

from models.metrics import Quality


def calibration_figure(title: str, quality: Quality) -> Figure:
    """Observed share against predicted probability, one point per bin of equal mass."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    axes.plot(
        [b.predicted for b in quality.reliability], [b.observed for b in quality.reliability], marker="o"
    )
    axes.set(
        xlabel="predicted probability",
        ylabel="observed share",
        xlim=(0, 1),
        ylim=(0, 1),
        title=f"{title}: calibration error {quality.calibration_error:.3f}",
    )
    return figure
