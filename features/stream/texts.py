"""Columns of texts: coded, so that each text is looked at once, and divided into parts by a hash of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.common.jit import bare

_NO_TEXTS, _NO_CODES = pa.array([], pa.string()), pa.array([], pa.int32())


def coded(rows: pa.Table) -> pa.Table:
    """`rows` in one chunk, each column of texts encoded by one dictionary."""
    rows = joined(rows)
    is_text = {field.name: pa.types.is_string(field.type) for field in rows.schema}
    return pa.table(
        {name: pc.dictionary_encode(rows[name]) if is_text[name] else rows[name] for name in is_text}
    )


def joined(rows: pa.Table) -> pa.Table:
    """`rows` in one chunk, the dictionaries of each encoded column merged into one."""
    return pa.table({name: whole(rows[name]) for name in rows.column_names})


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one chunk; if it is encoded, its dictionaries are merged into one."""
    if isinstance(column, pa.Array):
        return column
    if pa.types.is_dictionary(column.type):
        return _one_dictionary(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    return column.combine_chunks()


def _one_dictionary(chunks: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """The same values; Arrow's own way looks at all texts anew for each chunk."""
    texts = pa.concat_arrays([_NO_TEXTS, *(chunk.dictionary for chunk in chunks)])
    words = pc.dictionary_encode(texts)
    ends = np.cumsum([0, *(len(chunk.dictionary) for chunk in chunks)])
    indices = [
        words.indices.slice(start, len(chunk.dictionary)).take(chunk.indices)
        for start, chunk in zip(ends, chunks, strict=False)
    ]
    return pa.DictionaryArray.from_arrays(pa.concat_arrays([_NO_CODES, *indices]), words.dictionary)


Hashes = npt.NDArray[np.uint64]

_START, _FACTOR, _HALF = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(32)


def part_of(names: pa.ChunkedArray | pa.Array, n_parts: int) -> IntArray:
    """The part of each name, 0 … `n_parts` - 1, none of them null."""
    names = whole(names)
    if pa.types.is_dictionary(names.type):
        part: IntArray = part_of(names.dictionary, n_parts)[names.indices.to_numpy()]
        return part
    hashes = np.empty(len(names), np.uint64)
    _, offsets, texts = names.buffers()
    if len(names):
        ends = np.frombuffer(offsets, np.int32)[names.offset : names.offset + len(names) + 1]
        _hash(ends, np.frombuffer(texts or b"", np.uint8), hashes)
    return (hashes % np.uint64(n_parts)).astype(np.int64)


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
        digest = _START
        for place in range(ends[k], ends[k + 1]):
            digest = (digest ^ np.uint64(texts[place])) * _FACTOR
        out[k] = digest ^ (digest >> _HALF)


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
