"""Bounds of AUC, average precision and calibration error: a bootstrap over datasets."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from features.common.arrays import FloatArray, IntArray
from models.evaluation.bootstrap import CONFIDENCE, times_drawn
from models.evaluation.metrics import Quality, bin_of_rows

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
    found: Quality, labels: npt.ArrayLike, scores: npt.ArrayLike, groups: npt.ArrayLike
) -> dict[str, float]:
    """One-sided bounds of figures of `found`, such as `auc_lower` and `auc_upper`, each at 95 % confidence.

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
    binned = _Cells.of(group, bin_of_rows(s), s - y, np.ones(len(y))) if found.reliability else None
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
        value = getattr(found, name)
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
