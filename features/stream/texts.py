"""Columns of texts as codes: every operation then looks at each text once, however many rows have it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
