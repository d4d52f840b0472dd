"""Scores of files from a table, for the policies `score` and `score-tail`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import FloatArray, IntArray
from features.common.errors import InputError, SchemaError
from replay.read.formats import read_table
from replay.read.source import ColumnSource, column_names
from replay.read.times import read_ticks
from replay.read.values import encode, refuse_null, values_of
from replay.trace import Trace

_COLUMNS = ("as_of", "item", "score")


class TableScores(NamedTuple):
    """Scores of `n_items` files at `boundaries` (int64[k], s, ascending).

    Rows `start[k]` … `start[k + 1]` of `item` and `score` are those of boundary k.
    """

    boundaries: IntArray
    start: IntArray
    item: IntArray
    score: FloatArray
    n_items: int

    def at(self, k: int) -> FloatArray:
        """float64[m]: each file's score from boundary `k` on; 0 for a file without a row."""
        scores = np.zeros(self.n_items)
        rows = slice(int(self.start[k]), int(self.start[k + 1]))
        scores[self.item[rows]] = self.score[rows]
        return scores


def read_scores(path: Path, trace: Trace) -> TableScores:
    """The scores in a Parquet or CSV file with the columns as_of (like the times of a trace), item, score.

    Items that are not in the trace are left out. Raises SchemaError, InputError.
    """
    source = read_table(path, ("item",))
    if missing := [name for name in _COLUMNS if name not in source.schema.names]:
        raise SchemaError(f"{path} has no column {', '.join(missing)}; it has {column_names(source)}")
    as_of_s = read_ticks(source, "as_of", "s").seconds(None)
    codes = encode(source, source.take("item"), "item")
    score = _scores(source)
    place = pc.index_in(codes.values.cast(pa.string()), value_set=trace.names)
    item: IntArray = values_of(pa.chunked_array([pc.fill_null(place, -1)])).astype(np.int64)[codes.code]
    known = item >= 0
    if not known.any():
        raise InputError(f"{path} scores no file of the trace; name items as the trace does")
    order = np.flatnonzero(known)[np.argsort(as_of_s[known], kind="stable")]
    boundaries, first = np.unique(as_of_s[order], return_index=True)
    return TableScores(boundaries, np.append(first, order.size), item[order], score[order], trace.n_items)


def _scores(source: ColumnSource) -> FloatArray:
    column = source.take("score")
    refuse_null(source, column, "score")
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise SchemaError(f"{source.label}: score is {kind}; it must be numbers")
    score: FloatArray = values_of(column.cast(pa.float64()))
    if not np.isfinite(score).all():
        row = int(np.flatnonzero(~np.isfinite(score))[0])
        raise InputError(f"{source.where(row)} has score {score[row]}; correct or drop the row")
    return score
