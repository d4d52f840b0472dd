"""A popularity series in memory: the reads of each dataset in each unit of time, up to a given unit.

CSV of `dataset,week,accesses` (a unit is a week, by its number) or `date,dataset,n_accesses` (a unit is a
UTC day); further columns are ignored. Records after the given unit are not used.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from features.common.arrays import FloatArray, IntArray
from features.common.errors import InputError, SchemaError
from features.common.times import DAY_S

_EPOCH = dt.date(1970, 1, 1)
_MAX_UNIT = 100_000
_WEEKLY = ("week", "accesses", 7 * DAY_S)
_DAILY = ("date", "n_accesses", DAY_S)
_INTEGER = r"\s*\d{1,15}\s*"


@dataclasses.dataclass(frozen=True)
class Series:
    """A series known at the end of unit `now`. `unit_s`: seconds per unit; unit k begins at k·unit_s.

    `names`: every dataset with a record, sorted; `born`: its first record's unit, even of 0 reads. `code`
    (place in `names`), `unit` and `reads`: the records with reads, unique and sorted by code and unit.
    """

    unit_s: int
    now: int
    names: list[str]
    born: IntArray
    code: IntArray
    unit: IntArray
    reads: IntArray

    @property
    def first(self) -> int:
        """The first unit with a record."""
        return int(self.born.min())

    @property
    def offset(self) -> int:
        """Unit minus the number in the command line: 0 for weeks; days are numbered from 1."""
        return 0 if self.unit_s == _WEEKLY[2] else self.first - 1

    def until(self, unit: int) -> Series:
        """The series as known at the end of `unit`, which is between its first unit and now."""
        known = self.born <= unit
        code_then = np.cumsum(known) - 1
        held = self.unit <= unit
        names = [name for name, is_known in zip(self.names, known.tolist(), strict=True) if is_known]
        code = code_then[self.code[held]].astype(np.int64)
        return Series(self.unit_s, unit, names, self.born[known], code, self.unit[held], self.reads[held])

    def reads_within(self, code: IntArray, unit: IntArray, n_units: int) -> FloatArray:
        """Reads of each (dataset, unit) pair in the `n_units` units that follow."""
        stride = _MAX_UNIT * 4
        keys = self.code * stride + self.unit
        total = np.concatenate([[0], np.cumsum(self.reads)])
        low = np.searchsorted(keys, code * stride + unit, side="right")
        high = np.searchsorted(keys, code * stride + np.minimum(unit + n_units, stride - 1), side="right")
        return np.asarray(total[high] - total[low], dtype=np.float64)


def read_series(path: Path, as_of: str) -> Series:
    """The series in the CSV file `path` (may be gzipped) as known at `as_of`.

    `as_of`: a week's number; for a daily series a date `2015-09-30`, or a day's number with 1 for the file's
    first date. That unit is the last one known. Records of one dataset and unit are summed. Raises InputError
    (unreadable, no record up to as_of, a malformed value up to it), SchemaError (columns).
    """
    raw = _read(path)
    time, count, unit_s = _columns(path, list(raw.columns))
    units = _weeks(path, raw[time]) if time == "week" else _days(path, raw[time])
    if units.empty:
        raise InputError(f"{path}: there are no records")
    now = _last_unit(as_of, weekly=time == "week", first=int(units.min()))
    known = units <= now
    if not known.any():
        raise InputError(f"{path}: no record up to {as_of}; the first is of unit {units.min()}")
    reads = _counts(path, raw.loc[known, count])
    names = raw.loc[known, "dataset"]
    if (names == "").any():
        raise InputError(f"{path}: a record up to {as_of} has no dataset")
    rows = pd.DataFrame({"name": names, "unit": units[known], "reads": reads})
    return _series(rows, unit_s=unit_s, now=now)


def _series(rows: pd.DataFrame, *, unit_s: int, now: int) -> Series:
    ordered = sorted(rows["name"].unique())
    rows = rows.assign(code=rows["name"].map({name: i for i, name in enumerate(ordered)}))
    born = rows.groupby("code")["unit"].min().to_numpy(dtype=np.int64)
    summed = rows[rows["reads"] > 0].groupby(["code", "unit"], as_index=False)["reads"].sum()
    code, unit, reads = (summed[name].to_numpy(dtype=np.int64) for name in ("code", "unit", "reads"))
    return Series(unit_s, now, ordered, born, code, unit, reads)


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as CSV: {error}") from None


def _columns(path: Path, columns: list[str]) -> tuple[str, str, int]:
    for form in (_WEEKLY, _DAILY):
        if {"dataset", *form[:2]} <= set(columns):
            return form
    raise SchemaError(f"{path}: has columns {columns}; need dataset,week,accesses or date,dataset,n_accesses")


def _weeks(path: Path, column: pd.Series[str]) -> pd.Series[int]:
    _refuse(path, column, ~column.str.fullmatch(r"\s*\d{1,5}\s*"), "a week's number")
    return column.astype(np.int64)


def _days(path: Path, column: pd.Series[str]) -> pd.Series[int]:
    times = pd.to_datetime(column, format="%Y-%m-%d", errors="coerce")
    _refuse(path, column, times.isna(), "a date such as 2015-09-30")
    return (times - pd.Timestamp(_EPOCH)).dt.days.astype(np.int64)


def _counts(path: Path, column: pd.Series[str]) -> pd.Series[int]:
    _refuse(path, column, ~column.str.fullmatch(_INTEGER), "a number of accesses")
    return column.astype(np.int64)


def _refuse(path: Path, column: pd.Series[str], bad: pd.Series[bool], wanted: str) -> None:
    if bad.any():
        place = int(np.flatnonzero(bad.to_numpy())[0])
        where = f"{path}, record {column.index[place] + 1}"
        raise InputError(f"{where}: {column.name} is {column.iloc[place]!r}, not {wanted}")


def _last_unit(as_of: str, *, weekly: bool, first: int) -> int:
    text = as_of.strip()
    if text.isdecimal() and len(text) <= 5:
        return int(text) if weekly else first + int(text) - 1
    if not weekly:
        try:
            return (dt.date.fromisoformat(text) - _EPOCH).days
        except ValueError:
            pass
    wanted = "a week's number" if weekly else "a date such as 2015-09-30, or a day's number"
    raise InputError(f"as_of {as_of!r}: need {wanted}")
