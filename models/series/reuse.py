"""What a cache of whole datasets must know of the coming unit: who is read in it, who again after it."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from models.series.past import Past, fit_chance
from models.series.series import Series

Floats = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
_NEW_UNITS = 13


@dataclasses.dataclass(frozen=True)
class Reuse:
    """Chances at the end of `series.now`, one per dataset of the series; the coming unit is now + 1.

    `next1`, `next2`: to be read in the coming unit, or in it or the following; `again1`, `again2`: if it is
    read in the coming unit, to be read in the following unit, or the following two. `new_again1`,
    `new_again2`: the same of a dataset that is first heard of in the coming unit.
    """

    next1: Floats
    next2: Floats
    again1: Floats
    again2: Floats
    new_again1: float
    new_again2: float


def reuse(series: Series) -> Reuse:
    """The chances, learned from what is known now; shares where there is too little to learn from."""
    past = Past(series)
    return Reuse(
        next1=_chance(past, 1, of_read=False),
        next2=_chance(past, 2, of_read=False),
        again1=_chance(past, 1, of_read=True),
        again2=_chance(past, 2, of_read=True),
        new_again1=_of_new(series, 1),
        new_again2=_of_new(series, 2),
    )


def _chance(past: Past, n_units: int, *, of_read: bool) -> Floats:
    """To be read within `n_units`; with `of_read`, of those read in the next unit, after that unit."""
    rows, present = past.matured(n_units + of_read), past.present()
    if rows is None:
        return np.full(len(present), 0.5)
    counted: BoolArray = past.reads(rows, 1) > 0 if of_read else np.ones(len(rows.code), bool)
    labels = past.reads(rows, n_units, after=int(of_read))[counted] > 0
    scorer = fit_chance(rows.x[counted], labels)
    if scorer is None:
        return np.full(len(present), float(labels.mean()) if len(labels) else 0.5)
    return scorer.score(present)


def _of_new(series: Series, n_units: int) -> float:
    last = series.now - n_units
    code = np.flatnonzero((series.born > last - _NEW_UNITS) & (series.born <= last))
    read = series.reads_within(code, series.born[code], n_units) > 0
    return (float(read.sum()) + 0.5) / (len(read) + 1)
