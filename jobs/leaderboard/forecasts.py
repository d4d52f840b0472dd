"""Errors of forecasts of a trace's accesses per dataset, by hour and by day."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Final

import numpy as np
import pydantic

from features.common.arrays import IntArray
from features.common.times import DAY_S
from jobs.leaderboard.entries import FORM, BoardTrace
from models.series.rolling import rolling_quality
from models.series.series import Series

_HOUR_S: Final = 3600
_CUTS: Final = 6
"""Forecasts per trace and unit, spread over the counted days and, by hours, over the times of day."""
Amount = Annotated[float, pydantic.Field(ge=0, le=1e12, allow_inf_nan=False)]


@dataclasses.dataclass(frozen=True)
class Errors:
    """Mean |forecast - accesses| / accesses of the next hour or day, over datasets read in it.

    None: the trace has no unit to forecast.
    """

    form: int
    digest: str
    hourly: Amount | None
    daily: Amount | None

    def of(self, measure: str) -> float | None:
        """The error by the name of its measure, for example `daily_relative_error`."""
        return self.hourly if measure.startswith("hourly") else self.daily


def errors_of(board: BoardTrace) -> Errors:
    """The errors over the counted days of a trace, each forecast from what was known then."""
    return Errors(FORM, board.digest, *(_error(board, unit_s) for unit_s in (_HOUR_S, DAY_S)))


def series_of(board: BoardTrace, unit_s: int) -> Series:
    """Accesses per dataset and unit of a trace; unit 1 has its first access. The last unit is left out: the
    trace may end within it.
    """
    unit = board.trace.time_s // unit_s - int(board.trace.time_s[0]) // unit_s + 1
    n_units = int(unit[-1])
    unit = unit[unit < n_units]
    dataset = board.story.files.dataset[board.trace.item[: unit.size]].astype(np.int64)
    key, reads = np.unique(dataset * n_units + unit, return_counts=True)
    code, unit = np.divmod(key, n_units)
    present, code = np.unique(code, return_inverse=True)
    born = np.full(present.size, n_units)
    np.minimum.at(born, code, unit)
    names = [f"{number:09d}" for number in present.tolist()]
    return Series(unit_s, n_units - 1, names, born, code, unit, reads.astype(np.int64))


def cuts(board: BoardTrace, series: Series) -> IntArray:
    """Units of the counted days after which a forecast is made, in order."""
    first = board.from_s // series.unit_s - int(board.trace.time_s[0]) // series.unit_s
    if first >= series.now:
        return np.zeros(0, np.int64)
    return np.unique(np.linspace(first, series.now - 1, _CUTS).astype(np.int64))


def _error(board: BoardTrace, unit_s: int) -> float | None:
    series = series_of(board, unit_s)
    if not series.names:
        return None
    rows = list(rolling_quality(series, [1], cuts(board, series).tolist()))
    return float(np.mean([row.relative_error for row in rows])) if rows else None
