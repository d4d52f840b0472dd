"""Confidence bounds of a mean over days that depend on their neighbours: the circular block bootstrap.

Politis and Romano (1992): resamples are made of blocks of consecutive days, drawn with replacement.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from features.arrays import IntArray

RESAMPLES = 4000


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean with one-sided bounds: the true one is above `lower`, or below `upper`, at this confidence."""

    mean: float
    lower: float
    upper: float
    confidence: float


def mean_interval(
    days: npt.ArrayLike, *, block: int, confidence: float = 0.95, seed: int = 1, resamples: int = RESAMPLES
) -> Interval:
    """The mean of `days` (one number per day, in order) with one-sided percentile bounds.

    `block`: number of days drawn together. Raises ValueError without days or with a block below 1.
    """
    values = np.asarray(days, dtype=np.float64)
    means = values[_drawn(len(values), block, seed, resamples)].mean(axis=1)
    lower, upper = np.quantile(means, [1 - confidence, confidence])
    return Interval(float(values.mean()), float(lower), float(upper), confidence)


def ratio_interval(
    above: npt.ArrayLike,
    below: npt.ArrayLike,
    *,
    block: int,
    confidence: float = 0.95,
    seed: int = 1,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """The sum of `above` over that of `below` (one number per day each), with bounds as in `mean_interval`.

    None if `below` sums to 0 over all days, or over the days of a resample. Raises as `mean_interval`.
    """
    top, bottom = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    drawn = _drawn(len(top), block, seed, resamples)
    sums = bottom[drawn].sum(axis=1)
    if not bottom.sum() or not sums.all():
        return None
    lower, upper = np.quantile(top[drawn].sum(axis=1) / sums, [1 - confidence, confidence])
    return Interval(float(top.sum() / bottom.sum()), float(lower), float(upper), confidence)


def _drawn(n: int, block: int, seed: int, resamples: int) -> IntArray:
    """Indices of the `n` days of each resample, int64[resamples, n]; blocks wrap around the end."""
    if not n or block < 1:
        raise ValueError(f"need days and a block of at least 1, got {n} and {block}")
    block = min(block, n)
    starts = np.random.default_rng(seed).integers(0, n, (resamples, -(-n // block)))
    days: IntArray = (starts[:, :, None] + np.arange(block)).reshape(resamples, -1)[:, :n] % n
    return days
