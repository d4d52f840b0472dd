"""Reads of the table `accesses` as arrays, in the order in which they are counted.

A read counts from the first decision time (a multiple of the cycle) after it happened and was known. Of the
reads that count from the same time on, earlier ones come first. So a state that is carried on and one that is
built from all reads count them in the same order, however late some became known.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import FloatArray, Ids, IntArray
from features.common.hashes import Words, mixed
from features.common.jit import bare
from features.stream.names import numbered, ranked, text_hashes, whole
from features.stream.state import Files, Read, State, task_number, update, user_number

COLUMNS = (
    *("did", "dataset", "tier", "campaign", "size_bytes", "user", "task"),
    *("n_reads", "accessed_at", "known_at"),
)
"""Columns of `accesses` that are used."""

MICROS = 1_000_000
Numbers = npt.NDArray[np.integer]

_LAST = np.iinfo(np.int64).max
_STEP = np.uint64(0x9E3779B97F4A7C15)
_NUMBER_BITS = 51  # twice as much is exact in a float64


class Events(NamedTuple):
    """`n` reads in the order in which they are counted; times are seconds since 1970.

    `item`: the number of the file; `reader`: see `features.stream.state.task_number`, 0 if nobody is named;
    `at_s`: when it happened; `from_s`: the first decision time at which it counts.
    """

    item: Ids
    reader: IntArray
    n_reads: FloatArray
    at_s: FloatArray
    from_s: IntArray


def usable_from(times: pa.ChunkedArray | pa.Array, cycle_s: int) -> IntArray:
    """The first multiple of `cycle_s` after each of `times` (Arrow timestamps): int64[n], s since 1970."""
    micros = _integers(times)
    return np.asarray((micros // (cycle_s * MICROS) + 1) * cycle_s, np.int64)


def usable(accesses: pa.Table, *, cycle_s: int) -> IntArray:
    """The decision time (s since 1970) from which each read counts, by accessed_at and known_at: int64[n]."""
    return np.maximum(*(usable_from(accesses[name], cycle_s) for name in ("accessed_at", "known_at")))


def ordered(
    accesses: pa.Table, numbered_files: Callable[[], Ids], *, cycle_s: int
) -> tuple[Events, IntArray]:
    """The reads sorted as they are counted, and the row that each came from, int64[n].

    `numbered_files`: gives the number of the file of each row; called when the reads are sorted by time.
    """
    reader = _readers(accesses["user"], accesses["task"])
    at = _integers(accesses["accessed_at"])
    from_s = usable(accesses, cycle_s=cycle_s)
    order = np.argsort(at)
    cycle = (from_s - from_s.min(initial=_LAST)) // cycle_s
    few = cycle.astype(np.min_scalar_type(cycle.max(initial=0)))  # up to 16 bits are sorted by digits
    order, item = order[np.argsort(few[order], kind="stable")], numbered_files()
    order = _untied(order, (at, from_s), lambda among: (reader[among], item[among]))
    order = _untied(order, (reader, item, at, from_s), lambda among: _ranks(accesses.take(pa.array(among))))
    n_reads = _integers(accesses["n_reads"]).astype(np.float64)
    events = Events(item[order], reader[order], n_reads[order], at[order] / MICROS, from_s[order])
    return events, order


@bare
def count(
    state: State, files: Files, events: Events, span: tuple[int, int], share: tuple[int, int] = (0, 1)
) -> None:
    """Count the events of `span`, from its first number to before its last, in `state`.

    `share`: k of n threads that count the same span counts the datasets whose number is k modulo n.
    """
    for i in range(span[0], span[1]):
        item, at_s, from_s = events.item[i], events.at_s[i], float(events.from_s[i])
        if files.dataset[item] % share[1] == share[0]:
            update(state, files, Read(item, events.reader[i], events.n_reads[i], at_s, from_s))


def read_hashes(accesses: pa.Table) -> Words:
    """A hash of all that is used of each read, the same in every run: uint64[n].

    `accesses`: with the columns `COLUMNS`, each text encoded by a dictionary.
    """
    digest = np.zeros(accesses.num_rows, np.uint64)
    for name in COLUMNS:
        column = whole(accesses[name])
        if pa.types.is_dictionary(column.type):
            words = np.append(text_hashes(column.dictionary), np.uint64(0))
            values = words[column.indices.fill_null(len(column.dictionary)).to_numpy()]
        else:
            values = _integers(pc.fill_null(column.cast(pa.int64()), _LAST)).view(np.uint64)
        digest = mixed(digest ^ values) + _STEP
    return digest


def hashes(values: pa.Array) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each text, the same in every run: uint64[n]."""
    words = np.array(values.to_pylist(), dtype=object)
    return np.asarray(pd.util.hash_array(words, categorize=False), np.uint64)


def _readers(users: pa.ChunkedArray, tasks: pa.ChunkedArray) -> IntArray:
    """The number of each read's task, else of its user, else 0."""
    reader = np.zeros(len(users), np.int64)
    for column, number in ((users, user_number), (tasks, task_number)):
        names, (place,) = numbered([column])
        codes = (hashes(names) >> np.uint64(64 - _NUMBER_BITS)).astype(np.int64)
        reader = np.where(place >= 0, number(np.append(codes, 0)[place]), reader)
    return reader


def _untied(
    order: IntArray, keys: Sequence[Numbers], more: Callable[[IntArray], Sequence[Numbers]]
) -> IntArray:
    """`order`, which is by `keys`, with rows of equal keys by `more` keys, of which the last counts most."""
    tied = np.ones(max(0, order.size - 1), np.bool_)
    for key in keys:
        values = key[order]
        tied &= values[1:] == values[:-1]
    if not tied.any():
        return order
    run = np.concatenate([[0], np.cumsum(~tied)])
    places = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
    among = order[places]
    again = order.copy()
    again[places] = among[np.lexsort((*more(among), run[places]))]
    return again


def _ranks(rows: pa.Table) -> list[Ids]:
    """Numbers in the order of the values of columns that reads of a file and reader may differ in."""
    names = ("dataset", "tier", "campaign", "size_bytes", "n_reads")
    columns = [rows[name].cast(pa.string()) for name in names]
    return [place for column in columns for place in ranked([column])[1]]


def _integers(column: pa.ChunkedArray | pa.Array) -> IntArray:
    return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)
