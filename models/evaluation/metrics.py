"""Quality of scores and probabilities. Every function takes labels (0 or 1) and scores of equal length."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from features.common.arrays import FloatArray, IntArray

_EPSILON = 1e-6
N_BINS = 10


@dataclasses.dataclass(frozen=True)
class ReliabilityBin:
    """One bin of a reliability curve: mean predicted probability, observed share, weight in the bin."""

    predicted: float
    observed: float
    weight: float


@dataclasses.dataclass(frozen=True)
class Quality:
    """The figures of one model on one set of rows.

    `auc` and `average_precision` are NaN with one class; `log_loss`, `brier` and `calibration_error` are NaN,
    and `reliability` is empty, for scores that are not probabilities.
    """

    auc: float
    average_precision: float
    log_loss: float
    brier: float
    calibration_error: float
    reliability: tuple[ReliabilityBin, ...]
    n_rows: int
    positive_share: float

    @property
    def numbers(self) -> dict[str, float]:
        """All finite figures by name, without the reliability curve."""
        flat = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "reliability"}
        return {name: float(value) for name, value in flat.items() if math.isfinite(value)}


def quality(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> Quality:
    """All figures of predicted probabilities (0 … 1). Raises ValueError on empty input or unequal lengths."""
    y, p, w = _checked(labels, probabilities, weights)
    curve = reliability(y, p, w)
    return Quality(
        auc=auc(y, p, w),
        average_precision=average_precision(y, p, w),
        log_loss=log_loss(y, p, w),
        brier=float(np.average((p - y) ** 2, weights=w)),
        calibration_error=calibration_error(curve),
        reliability=curve,
        n_rows=len(y),
        positive_share=float(np.average(y, weights=w)),
    )


def ranking_quality(
    labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> Quality:
    """The figures of scores that are not probabilities: how well they rank. Raises as `quality`."""
    y, s, w = _checked(labels, scores, weights)
    ranked = auc(y, s, w), average_precision(y, s, w)
    return Quality(*ranked, math.nan, math.nan, math.nan, (), len(y), float(np.average(y, weights=w)))


def auc(labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Area under the ROC curve; NaN if one class is missing."""
    y, s, w = _checked(labels, scores, weights)
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415  replays need no scikit-learn, which takes long to import

    return float(roc_auc_score(y, s, sample_weight=w)) if 0 < y.sum() < len(y) else math.nan


def average_precision(
    labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Average precision; NaN if one class is missing."""
    y, s, w = _checked(labels, scores, weights)
    from sklearn.metrics import average_precision_score  # noqa: PLC0415  replays need no scikit-learn, which takes long to import

    return float(average_precision_score(y, s, sample_weight=w)) if 0 < y.sum() < len(y) else math.nan


def log_loss(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Mean negative log-likelihood in nats; probabilities are clipped to [1e-6, 1 - 1e-6]."""
    y, p, w = _checked(labels, probabilities, weights)
    p = np.clip(p, _EPSILON, 1 - _EPSILON)
    return float(np.average(-(y * np.log(p) + (1 - y) * np.log1p(-p)), weights=w))


def calibration_error(curve: tuple[ReliabilityBin, ...]) -> float:
    """Expected calibration error: the weighted mean of |predicted - observed| over the bins."""
    total = sum(b.weight for b in curve)
    return sum(b.weight * abs(b.predicted - b.observed) for b in curve) / total


def reliability(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> tuple[ReliabilityBin, ...]:
    """Ten bins of equal weight by rising probability; fewer where equal probabilities share a bin."""
    y, p, w = _checked(labels, probabilities, weights)
    bins = bin_of_rows(p, w)
    return tuple(
        ReliabilityBin(
            float(np.average(p[bins == b], weights=w[bins == b])),
            float(np.average(y[bins == b], weights=w[bins == b])),
            float(w[bins == b].sum()),
        )
        for b in np.unique(bins[w > 0])
    )


def bin_of_rows(probabilities: FloatArray, weights: FloatArray | None = None) -> IntArray:
    """The bin of each row, 0 to 9: of equal weight by rising probability; equal ones share a bin."""
    _, inverse = np.unique(probabilities, return_inverse=True)
    mass = np.bincount(inverse, weights)
    middle = np.cumsum(mass) - mass / 2
    of_value = np.minimum((middle / mass.sum() * N_BINS).astype(np.int64), N_BINS - 1)
    return np.asarray(of_value[inverse], dtype=np.int64)


def _checked(
    labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    y = np.asarray(labels, dtype=np.float64)
    s = np.asarray(scores, dtype=np.float64)
    w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not len(y) or len(y) != len(s) or len(y) != len(w):
        raise ValueError(
            f"need equal lengths above 0, got {len(y)} labels, {len(s)} scores, {len(w)} weights"
        )
    return y, s, w
