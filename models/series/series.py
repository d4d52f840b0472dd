"""A popularity series in memory: the reads of each dataset in each unit of time, up to a given unit.

Columns `dataset,week,accesses` (a unit is a week, by its number) or `date,dataset,n_accesses` (a unit is a
UTC day); further columns only tell rows apart. Records after the given unit are not used.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.errors import InputError, SchemaError
from features.common.names import NO_NAMES
from features.common.times import DAY_S
from replay.read.formats import read_table
from replay.read.source import ColumnSource
from replay.read.values import UNKNOWN, is_text, least, refuse_null, values_of

_EPOCH = dt.date(1970, 1, 1)
_MAX_UNIT = 100_000
_WEEKLY = ("week", "accesses", 7 * DAY_S)
_DAILY = ("date", "n_accesses", DAY_S)
_MOST_READS = 10**15


@dataclasses.dataclass(frozen=True)
class Series:
    """A series known at the end of unit `now`. `unit_s`: seconds per unit; unit k begins at k·unit_s.

    `names`: every dataset with a record, sorted; `born`: its first record's unit, even of 0 reads. `code`
    (place in `names`), `unit` and `reads`: the records with reads, unique and sorted by code and unit.
    `n_twice`: rows of the file that are equal to an earlier one.
    """

    unit_s: int
    now: int
    names: list[str]
    born: IntArray
    code: IntArray
    unit: IntArray
    reads: IntArray
    n_twice: int = 0

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
    """The series in the file `path`, CSV (also packed) or Parquet, as known at `as_of`.

    `as_of`: a week's number; for a daily series a date `2015-09-30`, or a day's number with 1 for the file's
    first date. That unit is the last one known. Rows of one dataset and unit are summed; rows that are equal
    in all named columns count once, as a pull counts them. Raises InputError (unreadable, no record up to
    as_of, a malformed value up to it), SchemaError (columns).
    """
    source = read_table(path, ("dataset",))
    time, count, unit_s = _columns(path, source.schema.names)
    units = _weeks(source) if time == "week" else _days(source)
    if not units.size:
        raise InputError(f"{path}: there are no records")
    now = _last_unit(as_of, weekly=time == "week", first=int(units.min()))
    known: BoolArray = units <= now
    if not known.any():
        raise InputError(f"{path}: no record up to {as_of}; the first is of unit {units.min()}")
    names = source.take("dataset").cast(pa.string())
    is_named = pc.and_(pc.is_valid(names), pc.invert(pc.is_in(names, value_set=pa.array(["", *NO_NAMES]))))
    if (known & ~is_named.to_numpy()).any():
        raise InputError(f"{path}: a record up to {as_of} has no dataset")
    others = sorted({*source.schema.names} - {"dataset", time, count, ""})
    table = {"name": names, "unit": units, "reads": _reads(source, count, known)}
    table |= {
        f"other {name}": source.take(name).cast(pa.string()) for name in others if _is_flat(source, name)
    }
    rows = pd.DataFrame({name: pd.Series(column) for name, column in table.items()})[known]
    once = rows.drop_duplicates()
    return _series(once[["name", "unit", "reads"]], unit_s=unit_s, now=now, n_twice=len(rows) - len(once))


def _series(rows: pd.DataFrame, *, unit_s: int, now: int, n_twice: int) -> Series:
    ordered = sorted(rows["name"].unique())
    rows = rows.assign(code=rows["name"].map({name: i for i, name in enumerate(ordered)}))
    born = rows.groupby("code")["unit"].min().to_numpy(dtype=np.int64)
    summed = rows[rows["reads"] > 0].groupby(["code", "unit"], as_index=False)["reads"].sum()
    code, unit, reads = (summed[name].to_numpy(dtype=np.int64) for name in ("code", "unit", "reads"))
    return Series(unit_s, now, ordered, born, code, unit, reads, n_twice)


def _columns(path: Path, columns: list[str]) -> tuple[str, str, int]:
    for form in (_WEEKLY, _DAILY):
        if {"dataset", *form[:2]} <= set(columns):
            return form
    raise SchemaError(f"{path}: has columns {columns}; need dataset,week,accesses or date,dataset,n_accesses")


def _weeks(source: ColumnSource) -> IntArray:
    column = source.take("week")
    refuse_null(source, column, "week")
    weeks = least(source, column, "week", 0)
    _refuse(source, "week", column, weeks >= _MAX_UNIT, f"below {_MAX_UNIT}")
    return weeks


def _days(source: ColumnSource) -> IntArray:
    column = source.take("date")
    refuse_null(source, column, "date")
    at = column.cast(pa.timestamp("s")) if pa.types.is_temporal(column.type) else column
    text = at.cast(pa.string())
    date = pc.replace_substring_regex(text, " 00:00:00Z?$", "")
    times = pc.strptime(date, format="%Y-%m-%d", unit="s", error_is_null=True)
    # It takes 30 February for 2 March, and a month of one digit.
    is_date = pc.fill_null(pc.equal(pc.strftime(times, format="%Y-%m-%d"), date), False)
    _refuse(source, "date", text, ~is_date.to_numpy(), "a date such as 2015-09-30")
    return np.asarray(values_of(times.cast(pa.int64())) // DAY_S, np.int64)


def _reads(source: ColumnSource, name: str, known: BoolArray) -> IntArray:
    """The accesses of each row that is `known`; -1 for others, which may be anything."""
    column = source.take(name)
    column = pc.if_else(pa.array(known), column, pa.scalar(None, column.type))
    reads = least(source, column, name, 0)
    _refuse(
        source, name, column, (reads > _MOST_READS) | (known & (reads == UNKNOWN)), "a number of accesses"
    )
    return reads


def _is_flat(source: ColumnSource, name: str) -> bool:
    kind = source.schema.field(source.schema.names.index(name)).type
    return is_text(kind) or bool(pa.types.is_primitive(kind))


def _refuse(source: ColumnSource, name: str, column: pa.ChunkedArray, wrong: BoolArray, allowed: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"{source.where(row)} has {name} {column[row].as_py()!r}, not {allowed}")


def _last_unit(as_of: str, *, weekly: bool, first: int) -> int:
    text = as_of.strip()
    if text.isdecimal() and len(text) <= 5:
        return int(text) if weekly else first + int(text) - 1
    if not weekly:
        try:
            return (dt.date.fromisoformat(text) - _EPOCH).days
        except ValueError:
            pass
    allowed = "a week's number" if weekly else "a date such as 2015-09-30, or a day's number"
    raise InputError(f"as_of {as_of!r}: need {allowed}")
