"""Names and their numbers: a name's place among all, sorted.

Most names of a region come from its state, where they are sorted already. Those are searched for the others,
which is much faster than a table of hashes of them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import bare
from features.stream.texts import whole


def distinct(columns: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Array:
    """The distinct texts of all columns, sorted; nulls are left out."""
    found = [pc.unique(column).cast(pa.string()) for column in columns]
    return pc.unique(pa.concat_arrays(found)).drop_null().sort()


def numbers(values: pa.ChunkedArray | pa.Array, known: pa.Array) -> Ids:
    """The index of each value in `known`: int32[n], -1 for null and for what `known` lacks."""
    if not len(values):
        return np.empty(0, np.int32)
    coded = pc.dictionary_encode(whole(values))
    places = pc.fill_null(pc.index_in(coded.dictionary, value_set=known), -1).to_numpy(zero_copy_only=False)
    codes = pc.fill_null(coded.indices, len(places)).to_numpy(zero_copy_only=False)
    found: Ids = np.append(places, -1).astype(np.int32)[codes]
    return found


def merged(columns: Sequence[pa.ChunkedArray]) -> tuple[pa.Array, list[Ids]]:
    """The texts of all columns, none null, each once, sorted; and the number of each text, by column."""
    names, rest = _sorted_start(columns[0])
    others = distinct([rest, *columns[1:]])
    place, is_there = search(names, others)
    is_new = np.flatnonzero(~is_there)
    new_number = (place[is_new] + np.arange(is_new.size)).astype(np.int32)
    is_old = np.ones(len(names) + is_new.size, np.bool_)
    is_old[new_number] = False
    old_number = np.flatnonzero(is_old).astype(np.int32)
    source = np.empty(is_old.size, np.int64)
    source[old_number], source[new_number] = np.arange(len(names)), len(names) + is_new
    every = pa.concat_arrays([names, others]).take(pa.array(source))
    of_others = np.empty(len(others), np.int32)
    of_others[is_there], of_others[is_new] = old_number[place[is_there]], new_number
    found = [of_others[numbers(column, others)] for column in (rest, *columns[1:])]
    return every, [np.concatenate([old_number, found[0]]), *found[1:]]


def _sorted_start(column: pa.ChunkedArray) -> tuple[pa.Array, pa.ChunkedArray]:
    """The first chunk of a column if it is sorted, each name once, and the rest."""
    chunks = column.chunks
    if chunks and pc.all(pc.less(chunks[0][:-1], chunks[0][1:]), min_count=0).as_py():
        return chunks[0], pa.chunked_array(chunks[1:], column.type)
    return pa.array([], pa.string()), column


def search(names: pa.Array, wanted: pa.Array) -> tuple[IntArray, BoolArray]:
    """Where each of `wanted` is, or would be, in `names` (sorted, each once), and whether it is there."""
    place, is_there = np.empty(len(wanted), np.int64), np.empty(len(wanted), np.bool_)
    _search(_texts(names), _texts(wanted), place, is_there)
    return place, is_there


def absent(wanted: pa.Array, column: pa.ChunkedArray) -> pa.Array:
    """The texts of `wanted` (without nulls) that do not occur in `column`."""
    names, rest = _sorted_start(column)
    _, is_there = search(names, wanted)
    return wanted.filter(pc.invert(pc.or_(pa.array(is_there), pc.is_in(wanted, value_set=rest))))


class _Texts(NamedTuple):
    """Texts as in Arrow: the text `k` is `letters[starts[k]:starts[k + 1]]`."""

    starts: Ids
    letters: npt.NDArray[np.uint8]


def _texts(names: pa.Array) -> _Texts:
    _, starts, letters = names.buffers()
    every = np.frombuffer(starts, np.int32) if starts else np.zeros(1, np.int32)
    found = every[names.offset : names.offset + len(names) + 1], np.frombuffer(letters or b"", np.uint8)
    for array in found:
        array.flags.writeable = False  # the kernel is compiled for one type
    return _Texts(*found)


@bare
def _search(names: _Texts, wanted: _Texts, place: IntArray, is_there: BoolArray) -> None:
    n = names.starts.size - 1
    for k in range(place.size):
        low, high = 0, n
        while low < high:
            middle = (low + high) // 2
            if _order(names, middle, wanted, k) < 0:
                low = middle + 1
            else:
                high = middle
        place[k] = low
        is_there[k] = low < n and _order(names, low, wanted, k) == 0


@bare
def _order(one: _Texts, i: int, other: _Texts, k: int) -> int:
    """-1 if the text `i` comes before the other's text `k`, 0 if they are equal, else 1."""
    a, b = one.starts[i], other.starts[k]
    n, m = one.starts[i + 1] - a, other.starts[k + 1] - b
    for at in range(min(n, m)):
        if one.letters[a + at] != other.letters[b + at]:
            return -1 if one.letters[a + at] < other.letters[b + at] else 1
    return 0 if n == m else -1 if n < m else 1
