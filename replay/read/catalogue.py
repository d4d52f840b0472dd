"""Names and sizes of files from a catalogue, also of files that the trace does not read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from features.arrays import BoolArray, IntArray
from features.errors import InputError, SchemaError
from replay.read.source import Source, column_names
from replay.read.values import UNKNOWN, codes_of, least, refuse_null

_COLUMNS = ("did", "size_bytes")


def with_catalogue(
    values: pa.Array, size: IntArray, files: Source | None
) -> tuple[pa.StringArray, IntArray, BoolArray]:
    """Names and sizes of the files `values`, then of files that only `files` has; and which `files` lists.

    `size`: bytes, or UNKNOWN, which is replaced by the catalogue's. `files`: did (unique), size_bytes.
    Raises SchemaError, InputError.
    """
    names: pa.StringArray = values.cast(pa.string())
    if files is None:
        return names, size, np.zeros(size.size, np.bool_)
    dids, stated = _read(files)
    # Coded together: the names keep their ids, files that only the catalogue has get the next ones.
    both = codes_of(pa.chunked_array([names, *dids.chunks], pa.string()))
    place = both.code[len(names) :]
    rows = np.bincount(place, minlength=len(both.values))
    if place.size and rows.max() > 1:
        twice = both.values[int(rows.argmax())].as_py()
        raise InputError(f"{files.label} has {twice!r} twice; it needs one row per file")
    filled = np.full(len(both.values), UNKNOWN, np.int64)
    filled[place] = stated
    filled[: size.size] = np.where(size == UNKNOWN, filled[: size.size], size)
    return both.values, filled, rows > 0


def _read(files: Source) -> tuple[pa.ChunkedArray, IntArray]:
    if missing := [name for name in _COLUMNS if name not in files.schema.names]:
        raise SchemaError(f"{files.label} has no column {', '.join(missing)}; it has {column_names(files)}")
    dids = files.take("did")
    refuse_null(files, dids, "did")
    return dids.cast(pa.string()), least(files, files.take("size_bytes"), "size_bytes", 0)
