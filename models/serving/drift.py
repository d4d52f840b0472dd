"""Drift of scored features from the training data: the population stability index (PSI).

The PSI sums (share now − share then) · ln(share now / share then) over the bins of a column: the deciles of
the training data, and a bin for null. By the credit industry's rule of thumb 0.1 is a shift and 0.25 a large
one.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from features.common.arrays import AnyFloatArray, IntArray

LARGE = 0.25
_TENTHS = np.linspace(0.1, 0.9, 9)
_LEAST_SHARE = 1e-4
_LEAST_ROWS = 200
"""As_ofs with fewer rows do not count when the usual difference between as_ofs is measured."""
_USUAL_QUANTILE = 0.9
_CHANCE = 35.6
"""The 99.99 % quantile of χ² with ten degrees of freedom."""
_GROWING = {
    *("n_reads", "since_first_s", "dataset_reads_per_file", "dataset_since_first_s", "dataset_n_passes")
}
"""Columns that grow from the first record on, so that they always differ from the training."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """The distribution of a column in training.

    `edges`: upper edges of all bins but the last; `shares`: of the bins, then of null, summing to 1;
    `usual_psi`: 90 % quantile of the PSI of single as_ofs of the training against all of them together.
    """

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    usual_psi: float


@dataclasses.dataclass(frozen=True)
class Drift:
    """One column compared with training. `n_rows`: number of rows compared."""

    column: str
    psi: float
    usual_psi: float
    null_share: float
    null_share_then: float
    n_rows: int

    @property
    def drifted(self) -> bool:
        """Whether the PSI is large, larger than usual in training, and not by chance.

        For equal distributions n · PSI is about χ² with one degree of freedom fewer than there are bins.
        """
        return self.psi > max(LARGE, self.usual_psi) + _CHANCE / self.n_rows


def reference(values: AnyFloatArray, as_of: IntArray) -> Reference:
    """The distribution of one column over all as_ofs, and how much single as_ofs differ from it."""
    present = values[~np.isnan(values)]
    edges = np.unique(np.quantile(present, _TENTHS)) if len(present) else np.empty(0)
    whole = Reference(tuple(float(e) for e in edges), _shares(edges, values), math.inf)
    fewest, parts = min(_LEAST_ROWS, len(values)), pd.Series(values).groupby(as_of)
    apart = [psi(whole, part.to_numpy()) for _, part in parts if len(part) >= fewest]
    return dataclasses.replace(whole, usual_psi=float(np.quantile(apart, _USUAL_QUANTILE)) if apart else 0.0)


def references(matrix: pd.DataFrame, as_of: IntArray) -> dict[str, Reference]:
    """A reference per column of a training matrix.

    Columns with one value per as_of (hour, weekday) are left out, and those that count from the first record
    on: they depend on the time.
    """
    if len(np.unique(as_of)) > 1:
        steady = matrix.groupby(as_of).nunique(dropna=False).max() <= 1
    else:
        steady = matrix.nunique(dropna=False) < 0
    compared = [name for name in matrix.columns if name not in _GROWING]
    names = [str(name) for name in compared if not steady[name] or matrix[name].nunique() == 1]
    return {name: reference(matrix[name].to_numpy(), as_of) for name in names}


def psi(then: Reference, now: AnyFloatArray) -> float:
    """The population stability index of `now`; shares below 1e-4 count as 1e-4. ValueError if empty."""
    if not len(now):
        raise ValueError("no rows to compare with training")
    old = np.maximum(then.shares, _LEAST_SHARE)
    new = np.maximum(_shares(np.asarray(then.edges), now), _LEAST_SHARE)
    return float(np.sum((new - old) * np.log(new / old)))


def drifts(references: Mapping[str, Reference], columns: Mapping[str, AnyFloatArray]) -> list[Drift]:
    """The drift of each column with a reference. Raises ValueError without rows."""
    return [
        Drift(
            column=name,
            psi=psi(then, columns[name]),
            usual_psi=then.usual_psi,
            null_share=float(np.isnan(columns[name]).mean()),
            null_share_then=then.shares[-1],
            n_rows=len(columns[name]),
        )
        for name, then in references.items()
    ]


def _shares(edges: AnyFloatArray, values: AnyFloatArray) -> tuple[float, ...]:
    null = np.isnan(values)
    bins = np.where(null, len(edges) + 1, np.searchsorted(edges, values))
    counts = np.bincount(bins, minlength=len(edges) + 2)
    return tuple(float(c) for c in counts / max(1, len(values)))
