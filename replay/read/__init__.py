"""Traces and scores read from files: the `accesses` table, any Parquet or CSV, and libCacheSim's formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import FloatArray, IntArray
from features.common.errors import InputError, SchemaError
from replay.read.assemble import EVERYTHING, Choice, LoadedTrace, assemble
from replay.read.files import missing_size_of
from replay.read.formats import (
    LCS,
    ORACLE,
    as_written,
    house_parts,
    kind_of,
    read_csv,
    read_lcs,
    read_oracle_general,
    read_table,
)
from replay.read.roles import Roles, foreign_roles, house_roles, is_house
from replay.read.source import ColumnSource, TableSource, column_names, parquet
from replay.read.times import UNITS, Clock, read_ticks
from replay.read.values import encode, refuse_null, values_of
from replay.read.zones import check_zone
from replay.trace import Trace

__all__ = ["KINDS", "LoadedTrace", "read_trace"]

KINDS = ("auto", "accesses", "table", ORACLE, LCS)
"""Values of `kind`; `accesses` and `table` are Parquet or CSV, whichever the content is."""

_AS_THEY_ARE: Mapping[str, str] = MappingProxyType({})
_BINARY = {ORACLE: read_oracle_general, LCS: read_lcs}


def read_trace(
    path: Path,
    *,
    columns: Mapping[str, str] = _AS_THEY_ARE,
    time_unit: str = "s",
    time_zone: str | None = None,
    kind: str = "auto",
    only: Mapping[str, str] = EVERYTHING,
    since_s: int | None = None,
    until_s: int | None = None,
    keep: Sequence[str] = (),
    sort: bool = False,
    missing_size: str | int | None = None,
) -> LoadedTrace:
    """The trace in a file or folder; `docs/replay.md` lists the kinds, and the treatment of faulty rows.

    `columns`: the columns by role (`replay.read.roles`); an empty name: none has it. `time_unit` (s, ms, us,
    ns): the unit of times that are numbers, or a format of `strptime` for strings; timestamps have their own.
    `time_zone`: that of times which state none (None: UTC).
    Only accesses with since_s <= time < until_s, and `only` these values of the roles site and activity, are
    kept. `keep`: columns to keep beside the trace, by role or else by name, if they exist. `sort`: sort a
    foreign table by time. `missing_size`: what becomes of its rows that state no size: `first`, the size that
    others state first of the file, and without one the row is dropped; `drop`; or the bytes, as `2GB`, of
    files that no row states; None: an error. Raises InputError, SchemaError.
    """
    if kind not in KINDS:
        raise InputError(f"no trace kind {kind!r}; choose one of {', '.join(KINDS)}")
    if time_unit not in UNITS and "%" not in time_unit:
        raise InputError(
            f"no time unit {time_unit!r}; choose one of {', '.join(UNITS)}, or a format like %d/%m/%Y"
        )
    check_zone(time_zone)
    if not path.exists():
        raise InputError(f"there is no trace {path}; check the path")
    choice = Choice(only, since_s, until_s, tuple(keep), missing_size_of(missing_size))
    accesses, files = house_parts(path)
    form = kind if kind in _BINARY else kind_of(accesses, table=kind != "auto")
    if form in _BINARY:
        source, roles = _BINARY[form](accesses), Roles("time", "item", "size")
    else:
        source = parquet(accesses) if form == "parquet" else read_csv(accesses)
        roles = _roles(source, kind, columns)
        if isinstance(source, TableSource):
            source = as_written(accesses, source, (roles.item, *roles.labels.values(), *keep))
    catalogue = None if files is None else parquet(files, repeated=False)
    clock = Clock(time_unit, time_zone)
    return assemble(source, roles, choice, clock=clock, sort=sort, files=catalogue)


def _roles(source: ColumnSource, kind: str, columns: Mapping[str, str]) -> Roles:
    if kind == "accesses" or (kind == "auto" and is_house(source, columns)):
        return house_roles(source, columns)
    return foreign_roles(source, columns)


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
    as_of_s = read_ticks(source, "as_of").seconds(None)
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
