"""Reads of the table `accesses` as arrays, in the order in which they are counted.

A read counts from the first decision time (a multiple of the cycle) after it happened and was known. Of the
reads that count from the same time on, earlier ones come first. So a state that is carried on and one that is
built from all reads count them in the same order, however late some became known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import FloatArray, IntArray
from features.stream.state import Ids, task_number, user_number

COLUMNS = (
    *("did", "dataset", "tier", "campaign", "size_bytes", "user", "task"),
    *("n_reads", "accessed_at", "known_at"),
)
"""Columns of `accesses` that are used."""

MICROS = 1_000_000
_NUMBER_BITS = 51  # twice as much is exact in a float64


class Events(NamedTuple):
    """`n` reads; `item`: number of the file; `reader`: see `features.stream.state`; `from_s`: see above."""

    item: Ids
    reader: IntArray
    n_reads: FloatArray
    at_s: FloatArray
    from_s: IntArray


def usable_from(times: pa.ChunkedArray | pa.Array, cycle_s: int) -> IntArray:
    """The first multiple of `cycle_s` after each of `times` (timestamp), seconds since 1970."""
    micros = _integers(times)
    return np.asarray((micros // (cycle_s * MICROS) + 1) * cycle_s, np.int64)


def usable(accesses: pa.Table, *, cycle_s: int) -> IntArray:
    """The first decision time that each read counts from; columns accessed_at and known_at."""
    return np.maximum(*(usable_from(accesses[name], cycle_s) for name in ("accessed_at", "known_at")))


def ordered(accesses: pa.Table, dids: pa.Array, *, cycle_s: int) -> tuple[Events, IntArray]:
    """The reads in order, and that order as indices of rows. `dids`: all files, sorted; a number each."""
    item = numbers(accesses["did"], dids)
    reader = _readers(accesses["user"], accesses["task"])
    at = _integers(accesses["accessed_at"])
    from_s = usable(accesses, cycle_s=cycle_s)
    keys = (reader, item, at, from_s)
    order = _without_ties(np.lexsort(keys), keys, accesses)
    n_reads = _integers(accesses["n_reads"]).astype(np.float64)
    events = Events(item[order], reader[order], n_reads[order], at[order] / MICROS, from_s[order])
    return events, order


def distinct(columns: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Array:
    """The texts of all columns, each once, sorted."""
    found = [pc.unique(column).cast(pa.string()) for column in columns]
    return pc.unique(pa.concat_arrays(found)).drop_null().sort()


def numbers(values: pa.ChunkedArray | pa.Array, known: pa.Array) -> Ids:
    """The index of each value in `known`, int32[n]; -1 for null and for what is not there."""
    coded = pc.dictionary_encode(values)
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.unify_dictionaries().combine_chunks()
    places = pc.fill_null(pc.index_in(coded.dictionary, value_set=known), -1).to_numpy(zero_copy_only=False)
    codes = pc.fill_null(coded.indices, len(places)).to_numpy(zero_copy_only=False)
    found: Ids = np.append(places, -1).astype(np.int32)[codes]
    return found


def hashes(values: pa.Array) -> npt.NDArray[np.uint64]:
    """A number of 64 bits for each text, the same in every run."""
    texts = np.array(values.to_pylist(), dtype=object)
    return np.asarray(pd.util.hash_array(texts, categorize=False), np.uint64)


def _readers(users: pa.ChunkedArray, tasks: pa.ChunkedArray) -> IntArray:
    """The number of each read's task, else of its user, else 0."""
    reader = np.zeros(len(users), np.int64)
    for column, number in ((users, user_number), (tasks, task_number)):
        names = distinct([column])
        place = numbers(column, names)
        codes = (hashes(names) >> np.uint64(64 - _NUMBER_BITS)).astype(np.int64)
        reader = np.where(place >= 0, number(np.append(codes, 0)[place]), reader)
    return reader


def _without_ties(order: IntArray, keys: Sequence[npt.NDArray[np.integer]], rows: pa.Table) -> IntArray:
    """`order`, with equal keys in an order that does not depend on where the rows came from."""
    tied = np.ones(max(0, order.size - 1), np.bool_)
    for key in keys:
        values = key[order]
        tied &= values[1:] == values[:-1]
    if not tied.any():
        return order
    run = np.concatenate([[0], np.cumsum(~tied)])
    places = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
    among = rows.take(pa.array(order[places]))
    ranks = [_ranks(among[name]) for name in ("dataset", "tier", "campaign", "size_bytes", "n_reads")]
    again = order.copy()
    again[places] = order[places][np.lexsort((*ranks, run[places]))]
    return again


def _ranks(column: pa.ChunkedArray) -> IntArray:
    """Numbers in the order of the values; null comes first."""
    return numbers(column, distinct([column])).astype(np.int64)


def _integers(column: pa.ChunkedArray | pa.Array) -> IntArray:
    return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)
