"""Quality of scores and probabilities, and confidence bounds by resamples: of means over days, and of rows.

Days depend on their neighbours: the circular block bootstrap of Politis and Romano (1992) draws blocks of
consecutive days with replacement. Groups of rows (`times_drawn`) do not: each is drawn by itself. Functions
of quality take labels (0 or 1) and scores of equal length.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from features.common.arrays import FloatArray, IntArray
from features.common.units import TOO_FEW_DAYS
from replay.comparison import Gap

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

    `auc` and `average_precision` are NaN with one class; `log_loss`, `brier` and `calibration_error`, the
    weighted mean of |predicted - observed| over the bins, are NaN, and `reliability` is empty, for scores
    that are not probabilities.
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
    curve = _reliability(y, p, w)
    return dataclasses.replace(
        ranking_quality(y, p, w),
        log_loss=log_loss(y, p, w),
        brier=float(np.average((p - y) ** 2, weights=w)),
        calibration_error=sum(b.weight * abs(b.predicted - b.observed) for b in curve)
        / sum(b.weight for b in curve),
        reliability=curve,
    )


def ranking_quality(
    labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> Quality:
    """The figures of scores that are not probabilities: how well they rank. Raises as `quality`."""
    y, s, w = _checked(labels, scores, weights)
    from sklearn.metrics import average_precision_score, roc_auc_score  # noqa: PLC0415  replays need no scikit-learn, which takes long to import

    area, precision = (
        float(measure(y, s, sample_weight=w)) if 0 < y.sum() < len(y) else math.nan
        for measure in (roc_auc_score, average_precision_score)
    )
    return Quality(area, precision, math.nan, math.nan, math.nan, (), len(y), float(np.average(y, weights=w)))


def log_loss(labels: FloatArray, probabilities: FloatArray, weights: FloatArray | None = None) -> float:
    """Mean negative log-likelihood in nats; probabilities are clipped to [1e-6, 1 - 1e-6]."""
    p = np.clip(probabilities, _EPSILON, 1 - _EPSILON)
    return float(np.average(-(labels * np.log(p) + (1 - labels) * np.log1p(-p)), weights=weights))


def _reliability(y: FloatArray, p: FloatArray, w: FloatArray) -> tuple[ReliabilityBin, ...]:
    """Ten bins of equal weight by rising probability; fewer where equal probabilities share a bin."""
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


BLOCK_DAYS = 7
"""The bootstrap draws whole weeks, because jobs have a weekly rhythm."""
BOUNDED_DAYS = 2 * BLOCK_DAYS
"""Fewer days have no bounds: every resample of them is made of nearly the same days."""

CONFIDENCE = 0.95
"""Of each bound."""
RESAMPLES = 4000
_SEED = 1
DRAWN_AT_ONCE = 1 << 22
"""Days of resamples in memory."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean with one-sided bounds: the true one is above `lower`, or below `upper`, each with `CONFIDENCE`.

    The bounds are None where there are too few days.
    """

    mean: float
    lower: float | None
    upper: float | None


def few_days(n_days: int) -> str | None:
    """Why so many days have no bounds, in words; None: they have."""
    return None if n_days >= BOUNDED_DAYS else f"{TOO_FEW_DAYS}: {n_days} count, bounds need {BOUNDED_DAYS}"


def mean_interval(days: npt.ArrayLike, *, block: int = BLOCK_DAYS) -> Interval:
    """The mean of `days` (one number per day, in order) with one-sided percentile bounds.

    Fewer than `BOUNDED_DAYS` have none. `block`: number of days drawn together. Raises ValueError without
    days or with a block below 1.
    """
    values = np.asarray(days, dtype=np.float64)
    ratio = ratio_interval(values, np.ones_like(values), block=block)
    assert ratio is not None  # a number of days is never 0
    return ratio


def ratio_interval(above: npt.ArrayLike, below: npt.ArrayLike, *, block: int = BLOCK_DAYS) -> Interval | None:
    """The sum of `above` over that of `below` (one number per day each), with bounds as in `mean_interval`.

    None if `below` sums to 0 over all days; without bounds if it does over those of a resample. Raises as
    `mean_interval`.
    """
    top, bottom = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    if not len(top) or block < 1:
        raise ValueError(f"need days and a block of at least 1, got {len(top)} and {block}")
    if not bottom.sum():
        return None
    mean = float(top.sum() / bottom.sum())
    if few_days(len(top)):
        return Interval(mean, None, None)
    above_sums, below_sums = _sums(np.stack([top, bottom]), block)
    if not below_sums.all():
        return Interval(mean, None, None)
    lower, upper = np.quantile(above_sums / below_sums, [1 - CONFIDENCE, CONFIDENCE])
    return Interval(mean, float(lower), float(upper))


def times_drawn(n_groups: int, resamples: int) -> Iterator[IntArray]:
    """Per resample, how often each of `n_groups` independent groups is drawn, int64[n_groups]."""
    draw = np.random.default_rng(_SEED)
    for _ in range(resamples):
        (drawn,) = _drawn(draw, n_groups, 1, 1)
        yield np.bincount(drawn, minlength=n_groups)


def group_sums(drawn: IntArray, group: IntArray, values: FloatArray, *, n_groups: int) -> FloatArray:
    """Sums of `values` by `group` over resamples of what is drawn together, float64[resamples, n_groups, k].

    `values`: float64[n, k], a row per pair of a thing that is drawn as a whole (`drawn`: its number, from 0)
    and a group (`group`: 0 … n_groups − 1).
    """
    n_drawn = int(drawn.max()) + 1
    resamples = RESAMPLES // 4
    sums = np.empty((resamples, n_groups, values.shape[1]))
    for sample, times in zip(sums, times_drawn(n_drawn, resamples), strict=True):
        weighted = values * times[drawn, None]
        sample[:] = np.stack([np.bincount(group, column, n_groups) for column in weighted.T], axis=1)
    return sums


def gap_columns(gap: Gap | None) -> dict[str, float | None]:
    """`byte_gap_closed`: the share of the way from LRU's WAN bytes to the bound's; its `_lower` and `_upper`.

    The last two are one-sided bounds at 95 % confidence each, by a block bootstrap over days. All are None
    where LRU reaches the bound, the bounds also where days are too few. None exceeds 1, the bound itself.
    """
    interval = None if gap is None else ratio_interval(*gap)
    mean, lower, upper = (None, None, None) if interval is None else dataclasses.astuple(interval)
    upper = None if upper is None else max(mean, min(upper, 1.0))
    return {"byte_gap_closed": mean, "byte_gap_closed_lower": lower, "byte_gap_closed_upper": upper}


def _sums(series: FloatArray, block: int) -> FloatArray:
    """The sum of each resample of each series, float64[k, n]: float64[k, RESAMPLES]; drawn some at a time."""
    n = series.shape[1]
    draw, at_once = np.random.default_rng(_SEED), max(1, DRAWN_AT_ONCE // n)
    parts = [
        series[:, _drawn(draw, n, min(block, n), min(at_once, RESAMPLES - done))].sum(axis=2)
        for done in range(0, RESAMPLES, at_once)
    ]
    return np.concatenate(parts, axis=1)


def _drawn(draw: np.random.Generator, n: int, block: int, resamples: int) -> IntArray:
    """Indices of the `n` days of each resample, int64[resamples, n]; blocks wrap around the end."""
    starts = draw.integers(0, n, (resamples, -(-n // block)))
    return np.asarray((starts[:, :, None] + np.arange(block)).reshape(resamples, -1)[:, :n] % n, np.int64)


LEAST_GROUPS = 20
"""Fewer groups have no bounds: resamples would be made of nearly the same ones."""
_RESAMPLES = 400
_RANKS = 2000
"""Steps of rank in which resamples compare scores; the figures between the bounds are exact."""


@dataclasses.dataclass(frozen=True)
class _Cells:
    """Rows of the same group and bin, summed."""

    group: IntArray
    bin: IntArray
    n_bins: int
    sums: tuple[FloatArray, ...]

    @classmethod
    def of(cls, group: IntArray, bins: IntArray, *values: FloatArray) -> _Cells:
        """The sums of each of `values` per group and bin."""
        n_bins = int(bins.max()) + 1
        pairs, cell = np.unique(group * n_bins + bins, return_inverse=True)
        sums = tuple(np.bincount(cell, value, minlength=len(pairs)) for value in values)
        return cls(pairs // n_bins, pairs % n_bins, n_bins, sums)

    def per_bin(self, times: IntArray) -> list[FloatArray]:
        """The sums per bin of a resample that has each group so many times."""
        drawn = times[self.group]
        return [np.bincount(self.bin, total * drawn, minlength=self.n_bins) for total in self.sums]


def quality_bounds(
    measured: Quality, labels: npt.ArrayLike, scores: npt.ArrayLike, groups: npt.ArrayLike
) -> dict[str, float]:
    """One-sided bounds at 95 % confidence of figures of `measured`, for example `auc_lower`, `auc_upper`.

    Of `auc` and `average_precision`, and of `calibration_error` if the scores are probabilities. `groups`:
    what a row belongs to, for example its dataset, from 0; whole groups are drawn, as rows of a dataset are
    read together. Empty with fewer than `LEAST_GROUPS` groups, or where a resample has one class only.
    """
    y, s = np.asarray(labels, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    n_groups = int(group.max()) + 1
    if n_groups < LEAST_GROUPS:
        return {}
    ranked = _Cells.of(group, _falling_ranks(s), y, 1 - y)
    binned = _Cells.of(group, bin_of_rows(s), s - y, np.ones(len(y))) if measured.reliability else None
    once = _figures(ranked, binned, np.ones(n_groups, dtype=np.int64))
    drawn = np.array([_figures(ranked, binned, times) for times in times_drawn(n_groups, _RESAMPLES)])
    if not np.isfinite(once).all() or not np.isfinite(drawn).all():
        return {}
    # As differences from what the same steps give once.
    below, above = np.quantile(drawn, [1 - CONFIDENCE, CONFIDENCE], axis=0) - once
    if binned is not None:
        below[2] = -above[2]  # the chance of a draw only adds to a calibration error
    bounds = {}
    for i, name in enumerate(("auc", "average_precision", "calibration_error")[: len(once)]):
        value = getattr(measured, name)
        bounds[f"{name}_lower"] = float(max(0.0, value + below[i]))
        bounds[f"{name}_upper"] = float(min(1.0, value + above[i]))
    return bounds


def _falling_ranks(scores: FloatArray) -> IntArray:
    """The rank of each row's score, 0 for the highest; equal scores share one."""
    _, rank, n_rows = np.unique(-scores, return_inverse=True, return_counts=True)
    if len(n_rows) <= _RANKS:
        return rank
    step = (np.cumsum(n_rows) - 1) * _RANKS // len(scores)
    return np.asarray(step[rank], dtype=np.int64)


def _figures(ranked: _Cells, binned: _Cells | None, times: IntArray) -> list[float]:
    """AUC, average precision and, with `binned`, calibration error of a resample; NaN with one class."""
    read, unread = ranked.per_bin(times)
    n_read, n_unread = read.sum(), unread.sum()
    if not n_read or not n_unread:
        return [np.nan] * (2 if binned is None else 3)
    read_above, unread_above = np.cumsum(read), np.cumsum(unread)
    auc = (unread * (read_above - read / 2)).sum() / (n_read * n_unread)
    precision = read_above / np.maximum(read_above + unread_above, 1)
    figures = [float(auc), float((read * precision).sum() / n_read)]
    if binned is not None:
        excess, n_rows = binned.per_bin(times)
        figures.append(float(np.abs(excess).sum() / n_rows.sum()))
    return figures
