"""Labels: the reads after an as_of, which a model is trained to predict."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.common.times import DAY_S
from features.common.units import duration_label
from features.spec import LONGEST_HORIZON_S, FeatureSpec
from features.stream.events import MICROS
from features.stream.names import numbers

COLUMNS = ("did", "accessed_at", "known_at", "n_reads")
"""Columns of `accesses` that are used."""


class Reads:
    """Reads that were known before `until_s`, ready to be looked up. `accesses`: with `COLUMNS`."""

    def __init__(self, accesses: pa.Table, *, until_s: int) -> None:
        is_known = np.asarray(accesses["known_at"].cast(pa.int64()).to_numpy() < until_s * MICROS)
        rows = accesses.filter(pa.array(is_known))
        self._until_s, self._dids = until_s, pc.unique(rows["did"].cast(pa.string()))
        at_s = np.asarray(rows["accessed_at"].cast(pa.int64()).to_numpy() // MICROS, np.int64)
        self._span_s = int(at_s.max(initial=0)) + 1
        key = self._keys(numbers(rows["did"], self._dids).astype(np.int64), at_s)
        order = np.argsort(key, kind="stable")
        self._key, self._at_s = key[order], at_s[order]
        n_reads = np.asarray(rows["n_reads"].to_numpy(), np.int64)[order]
        self._n_before = np.concatenate([[0], np.cumsum(n_reads)])
        # Reads that are the first of their file on their UTC day.
        item, day = self._key // (self._span_s + 1), self._at_s // DAY_S
        self._is_new_day = np.append(True, (item[1:] != item[:-1]) | (day[1:] != day[:-1]))[: day.size]
        self._days_before = np.concatenate([[0], np.cumsum(self._is_new_day)])

    def labels(self, dids: pa.Array, as_of_s: int, spec: FeatureSpec) -> pa.Table:
        """The labels of files at `as_of_s`, with the columns of `spec.labels_table`.

        - n_access_within_{h}: sum of n_reads with accessed_at in [as_of, as_of + h)
        - n_days_within_{h}: distinct UTC days with a read in [as_of, as_of + h)
        - next_access_s: whole seconds from as_of to the first read within the longest horizon; null: none

        The first two are null if as_of + h > until_s.

        Raises ValueError if a horizon is longer than 63 days.
        """
        longest_s = max(spec.horizons_s)
        if longest_s > LONGEST_HORIZON_S:
            raise ValueError(f"labels have horizons of at most 63 days, got {duration_label(longest_s)}")
        item = numbers(dids, self._dids).astype(np.int64)
        start = self._place(item, as_of_s)
        columns: dict[str, pa.Array] = {"did": dids}
        for h in spec.horizons_s:
            stop = self._place(item, as_of_s + h)
            matured = as_of_s + h <= self._until_s
            within = duration_label(h)
            columns[f"n_access_within_{within}"] = _counts(
                self._n_before[stop] - self._n_before[start], matured=matured
            )
            begun_before = (stop > start) & ~np.append(self._is_new_day, True)[start]
            n_days = self._days_before[stop] - self._days_before[start] + begun_before
            columns[f"n_days_within_{within}"] = _counts(n_days, matured=matured)
        is_read = self._place(item, as_of_s + longest_s) > start
        first = np.where(is_read, start, 0)
        next_s = np.append(self._at_s, 0)[first] - as_of_s
        columns["next_access_s"] = pa.array(next_s, mask=~is_read)
        return pa.table({name: columns[name] for name in spec.labels_table.column_names})

    def _keys(self, item: IntArray, at_s: IntArray | int) -> IntArray:
        """Numbers that order reads by file, then by time; times out of range come first or last."""
        return np.asarray(item * (self._span_s + 1) + np.clip(at_s, 0, self._span_s), np.int64)

    def _place(self, item: IntArray, at_s: int) -> IntArray:
        """The index of each file's first read at or after `at_s`, else past its last; 0 if it has no read."""
        place = np.searchsorted(self._key, self._keys(np.maximum(item, 0), at_s), side="left")
        return np.where(item >= 0, place, 0)


def _counts(values: IntArray, *, matured: bool) -> pa.Array:
    return pa.array(values) if matured else pa.nulls(values.size, pa.int64())
