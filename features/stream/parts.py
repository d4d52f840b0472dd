"""Rows divided into parts by a hash of a name, the same in every process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features.common.arrays import IntArray
from features.common.jit import bare
from features.stream.texts import joined, whole

Hashes = npt.NDArray[np.uint64]

_START, _FACTOR, _HALF = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(32)


def part_of(names: pa.ChunkedArray | pa.Array, n_parts: int) -> IntArray:
    """The part of each name, 0 … `n_parts` - 1, none of them null."""
    names = whole(names)
    if pa.types.is_dictionary(names.type):
        part: IntArray = part_of(names.dictionary, n_parts)[names.indices.to_numpy()]
        return part
    found = np.empty(len(names), np.uint64)
    _, offsets, texts = names.buffers()
    if len(names):
        ends = np.frombuffer(offsets, np.int32)[names.offset : names.offset + len(names) + 1]
        _hash(ends, np.frombuffer(texts or b"", np.uint8), found)
    return (found % np.uint64(n_parts)).astype(np.int64)


def divided(rows: pa.Table, part: IntArray, n_parts: int) -> Iterator[tuple[int, pa.Table]]:
    """Each part with the rows in it, if any; -1: in none. Dictionaries hold the texts of the part alone."""
    rows = joined(rows)
    order = np.argsort(part.astype(np.min_scalar_type(-n_parts)), kind="stable")
    edges = np.searchsorted(part[order], np.arange(n_parts + 1))
    ordered = rows.take(pa.array(order))
    for k in np.flatnonzero(np.diff(edges)):
        some = ordered.slice(edges[k], edges[k + 1] - edges[k])
        yield int(k), pa.table({name: _compact(some[name]) for name in some.column_names})


@bare
def _hash(ends: npt.NDArray[np.int32], texts: npt.NDArray[np.uint8], out: Hashes) -> None:
    """FNV-1a of each text, its halves mixed."""
    for k in range(out.size):
        found = _START
        for place in range(ends[k], ends[k + 1]):
            found = (found ^ np.uint64(texts[place])) * _FACTOR
        out[k] = found ^ (found >> _HALF)


def _compact(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column of texts with a dictionary of those that it has; others are as they were."""
    if not pa.types.is_dictionary(column.type):
        return column
    coded = column.combine_chunks()
    words = coded.dictionary
    codes = coded.indices.fill_null(len(words)).to_numpy()
    is_used = np.zeros(len(words) + 1, np.bool_)
    is_used[codes] = True
    is_used[-1] = False
    place = np.append(np.cumsum(is_used[:-1]) - 1, 0).astype(np.int32)
    indices = pa.array(place[codes], mask=codes == len(words))
    return pa.DictionaryArray.from_arrays(indices, words.take(pa.array(np.flatnonzero(is_used))))
