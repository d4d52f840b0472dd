"""Columns of names: coded, numbered by their place among all, sorted, and divided into parts by a hash.

Most names of a region come from its state, where they are sorted already. Those are searched for the others,
which is much faster than a table of hashes of them all.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.hashes import Words
from features.common.jit import bare, inner

_NO_TEXTS = pa.array([], pa.string())


def joined(rows: pa.Table) -> pa.Table:
    """`rows` in one chunk, the dictionaries of each encoded column merged into one."""
    return pa.table({name: whole(rows[name]) for name in rows.column_names})


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one chunk; if it is encoded, its dictionaries are merged into one."""
    if isinstance(column, pa.Array):
        return column
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if len(chunks) == 1:
        return chunks[0]
    return _one_dictionary(chunks) if pa.types.is_dictionary(column.type) else column.combine_chunks()


def _one_dictionary(chunks: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """The same values; Arrow's own way looks at all texts anew for each chunk."""
    if chunks and all(chunk.dictionary.equals(chunks[0].dictionary) for chunk in chunks[1:]):
        indices = pa.concat_arrays([chunk.indices for chunk in chunks])
        return pa.DictionaryArray.from_arrays(indices, chunks[0].dictionary)
    words, places = numbered(chunks)
    place = np.concatenate([np.empty(0, np.int32), *places])
    return pa.DictionaryArray.from_arrays(pa.array(place, mask=place < 0), words)


_START, _FACTOR, _HALF = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(32)


def part_of(names: pa.ChunkedArray | pa.Array, n_parts: int) -> IntArray:
    """The part of each name, 0 … `n_parts` - 1, none of them null."""
    names = whole(names)
    if pa.types.is_dictionary(names.type):
        return np.asarray(part_of(names.dictionary, n_parts)[names.indices.to_numpy()], np.int64)
    return (text_hashes(names) % np.uint64(n_parts)).astype(np.int64)


def text_hashes(texts: pa.ChunkedArray | pa.Array) -> Words:
    """A 64-bit hash of each text, none of them null, the same in every run: uint64[n]."""
    texts = whole(texts)
    if pa.types.is_dictionary(texts.type):
        return np.asarray(text_hashes(texts.dictionary)[texts.indices.to_numpy()], np.uint64)
    hashes = np.empty(len(texts), np.uint64)
    if len(texts):
        _hash(*_texts(texts), hashes)
    return hashes


def divided(rows: pa.Table, part: IntArray, n_parts: int) -> Iterator[tuple[int, pa.Table]]:
    """Each part with the rows in it, if any; -1: in none. Dictionaries hold the texts of the part alone."""
    rows = joined(rows)
    if (np.diff(part) < 0).any():
        order = np.argsort(part.astype(np.min_scalar_type(-n_parts)), kind="stable")
        part, rows = part[order], rows.take(pa.array(order))
    edges = np.searchsorted(part, np.arange(n_parts + 1))
    for k in np.flatnonzero(np.diff(edges)):
        some = rows.slice(edges[k], edges[k + 1] - edges[k])
        yield int(k), pa.table({name: _compact(whole(some[name])) for name in some.column_names})


@bare
def _hash(ends: npt.NDArray[np.int32], texts: npt.NDArray[np.uint8], out: Words) -> None:
    """FNV-1a of each text, its halves mixed."""
    for k in range(out.size):
        digest = _START
        for place in range(ends[k], ends[k + 1]):
            digest = (digest ^ np.uint64(texts[place])) * _FACTOR
        out[k] = digest ^ (digest >> _HALF)


def _compact(column: pa.Array) -> pa.Array:
    """A column of texts with a dictionary of those that it has; others are as they were."""
    if not pa.types.is_dictionary(column.type):
        return column
    words = column.dictionary
    codes = column.indices.fill_null(len(words)).to_numpy()
    is_used = np.zeros(len(words) + 1, np.bool_)
    is_used[codes] = True
    if is_used[:-1].all():
        return column
    is_used[-1] = False
    place = np.append(np.cumsum(is_used[:-1]) - 1, 0).astype(np.int32)
    indices = pa.array(place[codes], mask=codes == len(words))
    return pa.DictionaryArray.from_arrays(indices, words.take(pa.array(np.flatnonzero(is_used))))


def distinct(columns: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Array:
    """The distinct texts of all columns, sorted; nulls are left out."""
    return ranked(columns)[0]


def ranked(columns: Sequence[pa.ChunkedArray | pa.Array]) -> tuple[pa.Array, list[Ids]]:
    """The same, and the place there of each text, by column: int32[n], -1 for null."""
    texts, places = numbered(columns)
    order = pc.array_sort_indices(texts).to_numpy()
    rank = np.full(order.size + 1, -1, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return texts.take(pa.array(order)), [rank[place] for place in places]


def numbered(columns: Sequence[pa.ChunkedArray | pa.Array]) -> tuple[pa.Array, list[Ids]]:
    """The same, in any order."""
    coded = [_compact(pc.dictionary_encode(whole(column))) for column in columns]
    words = pa.concat_arrays([_NO_TEXTS, *(column.dictionary for column in coded)])
    sizes = [len(column.dictionary) for column in coded]
    place, ends = np.arange(len(words), dtype=np.int32), np.cumsum([0, *sizes])
    if np.count_nonzero(sizes) > 1:  # else each text is there once
        encoded = pc.dictionary_encode(words)
        words, place = encoded.dictionary, encoded.indices.to_numpy()
    places = []
    for column, start, end in zip(coded, ends[:-1], ends[1:], strict=True):
        number = np.append(place[start:end], np.int32(-1))
        places.append(number[column.indices.fill_null(end - start).to_numpy()])
    return words, places


def numbers(values: pa.ChunkedArray | pa.Array, known: pa.Array) -> Ids:
    """The index of each value in `known`: int32[n], -1 for null and for what `known` lacks."""
    if not len(values):
        return np.empty(0, np.int32)
    coded = pc.dictionary_encode(whole(values))
    places = pc.fill_null(pc.index_in(coded.dictionary, value_set=known), -1).to_numpy(zero_copy_only=False)
    codes = pc.fill_null(coded.indices, len(places)).to_numpy(zero_copy_only=False)
    return np.asarray(np.append(places, -1).astype(np.int32)[codes], np.int32)


def merged(columns: Sequence[pa.ChunkedArray]) -> tuple[pa.Array, list[Ids]]:
    """The texts of all columns, none null, each once, sorted; and the number of each text, by column."""
    names, rest = _sorted_start(columns[0])
    others, places = ranked([rest, *columns[1:]])
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
    number_of = [of_others[place_of] for place_of in places]
    return every, [np.concatenate([old_number, number_of[0]]), *number_of[1:]]


def _sorted_start(column: pa.ChunkedArray) -> tuple[pa.Array, pa.ChunkedArray]:
    """The first chunks of a column as long as they are sorted, each name once, in one; and the rest."""
    chunks, last = [chunk for chunk in column.chunks if len(chunk)], pa.scalar(None, pa.string())
    n_sorted = 0
    for chunk in chunks:
        is_next = pc.fill_null(pc.less(last, chunk[0]), True)
        if not is_next.as_py() or not pc.all(pc.less(chunk[:-1], chunk[1:]), min_count=0).as_py():
            break
        n_sorted, last = n_sorted + 1, chunk[-1]
    start = pa.concat_arrays([_NO_TEXTS, *chunks[:n_sorted]]) if n_sorted != 1 else chunks[0]
    return start, pa.chunked_array(chunks[n_sorted:], column.type)


def search(names: pa.Array, texts: pa.Array) -> tuple[IntArray, BoolArray]:
    """Where each of `texts` is, or would be, in `names` (sorted, each once), and whether it is there."""
    place, is_there = np.empty(len(texts), np.int64), np.empty(len(texts), np.bool_)
    _search(_texts(names), _texts(texts), place, is_there)
    return place, is_there


def absent(texts: pa.Array, column: pa.ChunkedArray) -> pa.Array:
    """The texts of `texts` (without nulls) that do not occur in `column`."""
    if not len(texts):
        return texts
    names, rest = _sorted_start(column)
    _, is_there = search(names, texts)
    return texts.filter(pc.invert(pc.or_(pa.array(is_there), pc.is_in(texts, value_set=rest))))


class _Texts(NamedTuple):
    """Texts as in Arrow: the text `k` is `letters[starts[k]:starts[k + 1]]`."""

    starts: Ids
    letters: npt.NDArray[np.uint8]


def _texts(names: pa.Array) -> _Texts:
    _, starts, letters = names.buffers()
    every = np.frombuffer(starts, np.int32) if starts else np.zeros(1, np.int32)
    buffers = every[names.offset : names.offset + len(names) + 1], np.frombuffer(letters or b"", np.uint8)
    for array in buffers:
        array.flags.writeable = False  # the kernel is compiled for one type
    return _Texts(*buffers)


@bare
def _search(names: _Texts, texts: _Texts, place: IntArray, is_there: BoolArray) -> None:
    n = names.starts.size - 1
    for k in range(place.size):
        low, high = 0, n
        while low < high:
            middle = (low + high) // 2
            if _order(names, middle, texts, k) < 0:
                low = middle + 1
            else:
                high = middle
        place[k] = low
        is_there[k] = low < n and _order(names, low, texts, k) == 0


@inner
def _order(left: _Texts, i: int, right: _Texts, k: int) -> int:
    """-1 if the text `i` comes before the other's text `k`, 0 if they are equal, else 1."""
    a, b = left.starts[i], right.starts[k]
    n, m = left.starts[i + 1] - a, right.starts[k + 1] - b
    for at in range(min(n, m)):
        if left.letters[a + at] != right.letters[b + at]:
            return -1 if left.letters[a + at] < right.letters[b + at] else 1
    return 0 if n == m else -1 if n < m else 1
