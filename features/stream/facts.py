"""What is known of files beside their reads, and from when on.

A fact is the one stated first, by a read or by the catalogue. So it does not matter how often, and from which
state, features are computed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import BoolArray, IntArray
from features.stream.events import MICROS, Events, distinct, numbers, usable_from
from features.stream.state import Ids

NEVER = np.iinfo(np.int64).max
ALWAYS = np.iinfo(np.int64).min

CATALOGUE = ("did", "dataset", "tier", "campaign", "size_bytes", "created_at", "known_at")
"""Columns of `files` that are used."""
_TEXTS = ("dataset", "tier", "campaign")
_TIME = pa.timestamp("us", tz="UTC")


class Fact(NamedTuple):
    """One fact of `m` files: codes into `words`, or numbers; -1: none. It is known from `from_s` on."""

    value: IntArray
    from_s: IntArray
    words: pa.Array | None = None

    def at(self, item: Ids, as_of_s: int) -> IntArray:
        """The fact of each of `item` as known at `as_of_s`, -1: not known."""
        return np.where(self.from_s[item] <= as_of_s, self.value[item], -1)

    def texts(self, item: Ids, as_of_s: int) -> pa.Array:
        """The same as words; null: not known."""
        assert self.words is not None
        codes = self.at(item, as_of_s)
        return self.words.take(pa.array(codes, mask=codes < 0))


class Statements(NamedTuple):
    """Rows that state facts of files, by number, and from when on each row may be used.

    `order`: indices of the rows, in the order of their precedence among those usable from the same time on.
    """

    item: Ids
    from_s: IntArray
    rows: pa.Table
    order: IntArray

    def first(self, n_files: int, stated: BoolArray) -> IntArray:
        """For each file its first row that may be used, of those `stated`, int64[m]; -1: none."""
        order = self.order[stated[self.order]]
        order = order[np.argsort(self.from_s[order], kind="stable")[::-1]]
        first = np.full(n_files, -1, np.int64)
        first[self.item[order]] = order
        return first


def fact(name: str, n_files: int, sources: list[Statements]) -> Fact:
    """The first statement of fact `name` for each file; of equally early ones that of the first source."""
    columns = [source.rows[name] for source in sources]
    words = None
    if name in _TEXTS:
        words = distinct(columns)
    value, from_s = np.full(n_files, -1, np.int64), np.full(n_files, NEVER)
    for source, column in zip(sources, columns, strict=True):
        codes = _codes(column, words)
        row = source.first(n_files, codes >= 0)
        stated = np.flatnonzero(row >= 0)
        earlier = stated[source.from_s[row[stated]] < from_s[stated]]
        value[earlier], from_s[earlier] = codes[row[earlier]], source.from_s[row[earlier]]
    return Fact(value, from_s, words)


def of_reads(accesses: pa.Table, events: Events, order: IntArray) -> Statements:
    """What reads state; `order`: of the rows, as the `events` are."""
    item, from_s = np.empty_like(events.item), np.empty_like(events.from_s)
    item[order], from_s[order] = events.item, events.from_s
    nothing = pa.nulls(accesses.num_rows, _TIME)
    return Statements(item, from_s, accesses.append_column("created_at", nothing), order)


def of_catalogue(files: pa.Table, dids: pa.Array, *, cycle_s: int) -> Statements:
    """What the catalogue states; `files`: unique by did."""
    from_s = usable_from(files["known_at"], cycle_s)
    return Statements(numbers(files["did"], dids), from_s, files, np.arange(files.num_rows))


def listed_from(catalogue: Statements, n_files: int, *, cycle_s: int) -> IntArray:
    """From when on each file is listed as one of its dataset: known, and created; NEVER: not listed."""
    created = usable_from(pc.fill_null(catalogue.rows["created_at"], pa.scalar(0, _TIME)), cycle_s)
    found = np.full(n_files, NEVER)
    found[catalogue.item] = np.maximum(catalogue.from_s, created)
    return found


def _codes(column: pa.ChunkedArray, words: pa.Array | None) -> IntArray:
    if words is not None:
        return numbers(column, words).astype(np.int64)
    values: npt.NDArray[np.int64] = np.asarray(pc.fill_null(column.cast(pa.int64()), -1).to_numpy())
    if pa.types.is_timestamp(column.type):
        is_null: BoolArray = np.asarray(column.is_null())
        return np.where(is_null, -1, np.maximum(values // MICROS, 0))
    return values
