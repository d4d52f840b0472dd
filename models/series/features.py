"""Features of a series: each dataset's own reads, and those of its neighbours by name and age."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import pandas as pd

from features.common.arrays import AnyFloatArray, BoolArray, Float32Array, FloatArray, IntArray
from models.learning.frame import sampled
from models.series.series import Series

_WINDOWS = (1, 2, 4, 8, 13, 26, 52)
_VOLUME_WINDOWS = (1, 4, 13, 52)
_HALF_LIVES = (1, 2, 4, 13, 26)
_VOLUME_HALF_LIVES = (1, 4, 13)
_GROUP_HALF_LIVES = (1, 4, 13)
_N_GAPS = 4
_HISTORY = 208
# Parts of the name (between slashes) that neighbours share. In names of LHCb and CMS the left parts say where
# data come from, the right parts what they hold.
_GROUPS: dict[str, Callable[[Sequence[str]], Hashable]] = {
    "prefix2": lambda parts: tuple(parts[:2]),
    "prefix3": lambda parts: tuple(parts[:3]),
    "prefix4": lambda parts: tuple(parts[:4]),
    "parent": lambda parts: tuple(parts[:-1]),
    "grandparent": lambda parts: tuple(parts[:-2]),
    "last": lambda parts: parts[-1],
    "second_last": lambda parts: tuple(parts[-2:-1]),
    "last2": lambda parts: tuple(parts[-2:]),
}


class SeriesFeatures:
    """The features of a series at units from `first` on; features at a unit use nothing later.

    Reads of the last 208 units up to `series.now` are held in memory, as datasets × units.
    """

    def __init__(self, series: Series) -> None:
        self.series = series
        self.first = max(series.first, series.now - _HISTORY + 1)
        self._start = start = self.first - 1
        # Reads of each dataset (row) in the units start … now (column); column 0 stays empty.
        reads = np.zeros((len(series.names), series.now - start + 1), np.float32)
        is_later = series.unit > start
        reads[series.code[is_later], series.unit[is_later] - start] = series.reads[is_later]
        self._active = reads > 0
        self._volume = np.log1p(reads)
        self._n_active = _running(self._active)
        self._n_reads = _running(reads)
        # Per cell, the column of the last active cell up to it in its row; 0 if there is none.
        columns = np.arange(self._active.shape[1])
        self._last = np.maximum.accumulate(np.where(self._active, columns, 0), axis=1)
        self._decayed = {h: _decayed(self._active.astype(np.float32), h) for h in _HALF_LIVES}
        self._decayed_volume = {h: _decayed(self._volume, h) for h in _VOLUME_HALF_LIVES}
        self._groups = _groups(series)

    def known(self, unit: int) -> IntArray:
        """Codes of the datasets with a record by `unit`, in order."""
        return np.flatnonzero(self.series.born <= unit)

    def at(self, unit: int) -> pd.DataFrame:
        """float32 columns, a row per dataset of `known(unit)`; NaN where undefined.

        `recency`, `age`, `gap1` …: units; `n_active_{w}`, `n_reads_{w}`: units with reads, and reads, in the
        last w units; `decayed_{h}`, `decayed_volume_{h}`: units with reads, and ln(1 + reads), fading with
        half-life h. `{group}_size`: other datasets that share this part of the name (or the unit of the first
        record); `{group}_decayed_{h}`: their mean decayed count.
        """
        codes, now = self.known(unit), unit - self._start
        own = self._own(codes, now) | self._neighbours(codes, now)
        return pd.DataFrame({name: np.asarray(column, np.float32) for name, column in own.items()})

    def _own(self, codes: IntArray, now: int) -> dict[str, AnyFloatArray]:
        last = self._last[codes, now]
        age = now + self._start - self.series.born[codes]
        recency = np.where(last > 0, now - last, age + 1).astype(np.float32)
        n_active, n_reads = self._n_active[codes], self._n_reads[codes]
        total = n_active[:, now]
        mean_gap = np.maximum(age - recency, 0) / np.maximum(total - 1, 1)
        columns = {
            "recency": recency,
            "age": age,
            "n_active": total,
            "n_reads": n_reads[:, now],
            "rate": total / (age + 1),
            "mean_gap": mean_gap,
            "relative_recency": recency / (mean_gap + 1),
            "last_volume": self._volume[codes, last],
            "most_volume": self._volume[codes, : now + 1].max(axis=1),
        }
        for k, gap in enumerate(self._gaps(codes, last), start=1):
            columns[f"gap{k}"] = gap
        for w in _WINDOWS:
            columns[f"n_active_{w}"] = total - n_active[:, max(now - w, 0)]
        for w in _VOLUME_WINDOWS:
            columns[f"n_reads_{w}"] = n_reads[:, now] - n_reads[:, max(now - w, 0)]
        columns |= {f"decayed_{h}": table[codes, now] for h, table in self._decayed.items()}
        return columns | {f"decayed_volume_{h}": t[codes, now] for h, t in self._decayed_volume.items()}

    def _gaps(self, codes: IntArray, last: IntArray) -> list[Float32Array]:
        """Units between the last units with reads, the latest gap first."""
        gaps = []
        for _ in range(_N_GAPS):
            before = np.where(last > 0, self._last[codes, np.maximum(last - 1, 0)], 0)
            gaps.append(np.where(before > 0, last - before, np.nan).astype(np.float32))
            last = before
        return gaps

    def _neighbours(self, codes: IntArray, now: int) -> dict[str, AnyFloatArray]:
        columns: dict[str, AnyFloatArray] = {}
        for name, group_of in self._groups.items():
            group = group_of[codes]
            others = np.bincount(group)[group] - 1.0
            columns[f"{name}_size"] = others
            for h in _GROUP_HALF_LIVES:
                count = self._decayed[h][codes, now].astype(np.float64)
                rest = np.bincount(group, count)[group] - count
                columns[f"{name}_decayed_{h}"] = np.where(others > 0, rest / np.maximum(others, 1), np.nan)
        return columns


def _running(values: BoolArray | Float32Array) -> Float32Array:
    return np.asarray(np.cumsum(values, axis=1, dtype=np.float64), np.float32)


def _decayed(values: Float32Array, half_life: float) -> Float32Array:
    faded = np.zeros_like(values)
    keep = np.float32(0.5 ** (1 / half_life))
    for column in range(1, values.shape[1]):
        faded[:, column] = faded[:, column - 1] * keep + values[:, column]
    return faded


def _groups(series: Series) -> dict[str, IntArray]:
    parts = [name.strip("/").split("/") for name in series.names]
    keys = {name: pd.Series([key(p) for p in parts], dtype=object) for name, key in _GROUPS.items()}
    codes = {name: pd.factorize(values)[0].astype(np.int64) for name, values in keys.items()}
    return codes | {"born": series.born - series.born.min()}


_TRAINING_UNITS = 52
_LONG_UNITS = 400
_SPREAD_UNITS = 100
_MIN_HISTORY = 4
_MAX_PAIRS = 400_000


@dataclasses.dataclass(frozen=True)
class Rows:
    """Features `x` of (dataset, unit) pairs, with the dataset's `code` and the `unit` of each row."""

    x: pd.DataFrame
    code: IntArray
    unit: IntArray


class Past:
    """Training rows of a series; features are computed once per unit."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self._features = SeriesFeatures(series)
        n_pairs = int(np.minimum(series.now - series.born + 1, _TRAINING_UNITS).sum())
        self._sampled = sampled(series.names, "", _MAX_PAIRS / max(n_pairs, 1))
        self._tables: dict[int, tuple[pd.DataFrame, IntArray]] = {}

    def present(self) -> Rows:
        """A row per dataset, now."""
        code = np.arange(len(self.series.names))
        return Rows(self._features.at(self.series.now), code, np.full(len(code), self.series.now))

    def matured(self, n_units: int) -> Rows | None:
        """Rows of the last 52 units whose next `n_units` are known; None if there are no such units.

        Units before those that `SeriesFeatures` holds are left out. A unit has a row per dataset known by
        then, or per dataset of a sample if there are very many.
        """
        last = self.series.now - n_units
        units = range(max(last - _TRAINING_UNITS + 1, self._features.first + _MIN_HISTORY), last + 1)
        if not units:
            return None
        tables, codes = zip(*(self._table(unit) for unit in units), strict=True)
        when = np.repeat(np.asarray(units, np.int64), [len(code) for code in codes])
        return Rows(pd.concat(tables, ignore_index=True), np.concatenate(codes), when)

    def pairs(self, n_units: int) -> tuple[IntArray, IntArray]:
        """Codes and units like those of `matured`, but of up to 100 units spread over the last 400."""
        last = self.series.now - n_units
        first = max(self.series.first + _MIN_HISTORY, last - _LONG_UNITS + 1)
        units = np.unique(np.linspace(first, last, min(_SPREAD_UNITS, last - first + 1)).astype(np.int64))
        known = [np.flatnonzero((self.series.born <= unit) & self._sampled) for unit in units]
        return np.concatenate(known), np.repeat(units, [len(code) for code in known])

    def reads(self, rows: Rows, n_units: int) -> FloatArray:
        """Reads of each row in the `n_units` units that follow its own."""
        return self.series.reads_within(rows.code, rows.unit, n_units)

    def _table(self, unit: int) -> tuple[pd.DataFrame, IntArray]:
        if unit not in self._tables:
            code = self._features.known(unit)
            keep = self._sampled[code]
            self._tables[unit] = self._features.at(unit)[keep], code[keep]
        return self._tables[unit]
