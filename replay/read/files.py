"""The files of a trace: their sizes, names and dense ids; also those that only a catalogue has."""

from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.accesses import catalogue_first, first_stated, most_stated
from features.common.arrays import BoolArray, IntArray
from features.common.errors import InputError, SchemaError
from features.common.units import format_bytes, parse_bytes
from replay.read.roles import Roles
from replay.read.source import ColumnSource, column_names
from replay.read.values import (
    UNKNOWN,
    Codes,
    Column,
    Rows,
    array_of,
    codes_of,
    encode,
    least,
    narrowed,
    pick,
    refuse_null,
)
from replay.trace import ItemArray

MOST_BYTES = 2.0**62
"""Sums of bytes beyond this do not fit 64 bits."""
FIRST, DROP = "first", "drop"
MissingSize: TypeAlias = str | int | None
"""What becomes of rows without a size: FIRST, DROP, or bytes of files that no row states; None: an error."""


class FileColumns(NamedTuple):
    """`code`: the file of each row of the source; the others have one entry per file.

    `size_bytes`: UNKNOWN where no source states it; `listed`: the file is in the catalogue. `n_differing`:
    number of rows that state another size than their file's, `differing_bytes` by how much; `n_shared`:
    number of names that several datasets have. `is_sized`: rows that are not to be dropped for the size that
    they lack (None: all); `notes`: what became of rows that state none.
    """

    code: ItemArray
    size_bytes: IntArray
    names: pa.StringArray
    listed: BoolArray
    n_differing: int
    differing_bytes: int
    n_shared: int
    is_sized: BoolArray | None
    notes: tuple[str, ...]


def read_files(
    source: ColumnSource,
    roles: Roles,
    rows: Rows,
    catalogue: ColumnSource | None,
    *,
    dataset: Column | None = None,
    missing_size: MissingSize = None,
) -> FileColumns:
    """The files of `source`, then those that only `catalogue` has; sizes as `features.accesses` has them.

    Files of a foreign trace have the size that is stated first, as in other simulators. `dataset`: of each
    row. A name that several datasets have is a file in each of them. `missing_size`: see `read_trace`.
    Raises InputError, SchemaError.
    """
    codes, n_shared = encode(source, source.take(roles.item), roles.item), 0
    if dataset is not None and not roles.house:
        codes, n_shared = _apart(codes, dataset if isinstance(dataset, Codes) else codes_of(dataset))
    column = source.take(roles.size)
    if not roles.house and missing_size is None:
        refuse_null(source, column, roles.size, "correct or drop the row, or give --missing-size")
    stated = least(source, column, roles.size, 0)
    del column
    # Arrow's memory is read-only. To numba that is another type, which would need another compilation.
    writeable = np.require(pick(rows, stated), requirements=["W"])
    code = pick(rows, codes.code)
    size = (most_stated if roles.house else first_stated)(code, writeable, len(codes.values))
    notes: tuple[str, ...] = ()
    is_sized = None
    if not roles.house and (writeable == UNKNOWN).any():
        is_sized = stated != UNKNOWN if missing_size == DROP else None
        size, notes = _filled(size, code[writeable == UNKNOWN], missing_size)
    names, size, listed = with_catalogue(codes.values, size, catalogue)
    differs = np.flatnonzero((writeable != UNKNOWN) & (writeable != size[code]))
    off = np.abs(writeable[differs] - size[code[differs]]).sum(dtype=np.float64)
    return FileColumns(codes.code, size, names, listed, differs.size, int(off), n_shared, is_sized, notes)


def missing_size_of(text: str | int | None) -> MissingSize:
    """`first`, `drop`, or bytes. Raises InputError."""
    if text is None or text in (FIRST, DROP) or isinstance(text, int):
        return text
    try:
        return parse_bytes(text)
    except InputError:
        raise InputError(
            f"no rule for missing sizes: {text!r}; give {FIRST}, {DROP} or a size like 2GB"
        ) from None


def _filled(size: IntArray, code: ItemArray, missing_size: MissingSize) -> tuple[IntArray, tuple[str, ...]]:
    """Sizes by file, also of those that no row states, if all such have one; and what became of rows.

    `code`: the files of the rows that state no size.
    """
    if missing_size == DROP:
        return size, (f"rows without a size, left out: {code.size}",)
    n_unstated = int((size[code] == UNKNOWN).sum())
    notes = {"rows without a size, taken as the first that is stated of their file": code.size - n_unstated}
    if isinstance(missing_size, int):
        size = np.where(size == UNKNOWN, missing_size, size)
        notes[f"rows of files whose size no row states, taken as {format_bytes(missing_size)}"] = n_unstated
    return size, tuple(f"{what}: {n}" for what, n in notes.items() if n)


def _apart(files: Codes, datasets: Codes) -> tuple[Codes, int]:
    """The files with a code for each dataset that has their name, and the number of names that several have.

    Such a file is called by its dataset too: `dataset/name`. Rows without a dataset are of the first one.
    """
    known: BoolArray = datasets.code != UNKNOWN
    first = np.full(len(files.values), UNKNOWN, np.int32)
    first[files.code[known][::-1]] = datasets.code[known][::-1]
    elsewhere: BoolArray = known & (datasets.code != first[files.code])
    if not elsewhere.any():
        return files, 0
    n_datasets = len(datasets.values)
    pairs = files.code[elsewhere].astype(np.int64) * n_datasets + datasets.code[elsewhere]
    others, place = np.unique(pairs, return_inverse=True)
    code = files.code.copy()
    code[elsewhere] = len(files.values) + place
    shared = np.unique(others // n_datasets)
    is_shared = np.zeros(len(files.values), np.bool_)
    is_shared[shared] = True
    names = files.values.cast(pa.string())
    called = datasets.values.cast(pa.string())
    of_first = pc.binary_join_element_wise(called.take(array_of(first, absent=first < 0)), names, "/")
    of_others = pc.binary_join_element_wise(
        called.take(array_of(others % n_datasets)), names.take(array_of(others // n_datasets)), "/"
    )
    values = pa.concat_arrays([pc.if_else(array_of(is_shared), of_first, names), of_others])
    return Codes(code, values), int(shared.size)


def rows_of_known_size(rows: Rows, files: FileColumns) -> tuple[Rows, int]:
    """Those of `rows` whose file has a size, and the number of the others. Raises InputError if none has."""
    if files.is_sized is not None:
        rows = narrowed(rows, files.is_sized)
    known: BoolArray = files.size_bytes != UNKNOWN
    if known.all():
        return rows, 0
    is_sized = known[files.code]
    sized_rows = pick(rows, is_sized)
    if not sized_rows.any():
        raise InputError("no access has a file of known size; give size_bytes or a files table")
    return narrowed(rows, is_sized), int(sized_rows.size - sized_rows.sum())


def dense_files(rows: Rows, files: FileColumns) -> tuple[ItemArray, IntArray, pa.StringArray]:
    """Ids without gaps of the files of `rows`, and size and name by id, of files that are read or listed."""
    item, size = pick(rows, files.code), files.size_bytes
    is_used = files.listed & (size != UNKNOWN)
    is_used[item] = True
    if is_used.all():
        return item, size, files.names
    dense = (np.cumsum(is_used) - 1).astype(np.int32)
    return dense[item], size[is_used], files.names.filter(array_of(is_used))


def refuse_overflow(source: ColumnSource, item: ItemArray, size: IntArray) -> None:
    """Raise InputError if the bytes requested, or those of all files, are too many for 64 bits."""
    requested = float(np.bincount(item, minlength=size.size) @ size.astype(np.float64))
    if max(requested, float(size.sum(dtype=np.float64))) >= MOST_BYTES:
        raise InputError(
            f"{source.label} requests {requested:.3g} bytes in total, too many for 64 bits; "
            "check the unit of its sizes"
        )


_COLUMNS = ("did", "size_bytes")


def with_catalogue(
    values: pa.Array, size: IntArray, files: ColumnSource | None
) -> tuple[pa.StringArray, IntArray, BoolArray]:
    """Names and sizes of the files `values`, then of files that only `files` has; and which `files` lists.

    `size`: bytes that records state, or UNKNOWN. `files`: did (unique), size_bytes.
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
    filled[: size.size] = catalogue_first(filled[: size.size], size)
    return both.values, filled, rows > 0


def _read(files: ColumnSource) -> tuple[pa.ChunkedArray, IntArray]:
    if missing := [name for name in _COLUMNS if name not in files.schema.names]:
        raise SchemaError(f"{files.label} has no column {', '.join(missing)}; it has {column_names(files)}")
    dids = files.take("did")
    refuse_null(files, dids, "did")
    return dids.cast(pa.string()), least(files, files.take("size_bytes"), "size_bytes", 0)
