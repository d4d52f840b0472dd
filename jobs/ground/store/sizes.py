"""The sizes of files, by records, the catalogue, and what caches hold."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.accesses import UNKNOWN, catalogue_first, most_stated
from features.common.arrays import IntArray
from features.schema import ACCESSES, CONTENTS, FILES
from jobs.ground.store.tables import Tables

_COLUMNS = ["did", "size_bytes"]


def catalogue(tables: Tables, reads: pa.Table, beside: pa.Table) -> pa.Table | None:
    """The files table (did, size_bytes), and what else is known of the files of `reads` without a size.

    That is what other sources state in `beside`, accesses of the same days, else the newest inventory of a
    cache. A size of 0 is replaced by any other. None if there is neither a file nor a size.
    """
    files = tables.read_arrow(FILES, columns=_COLUMNS) if tables.exists(FILES) else None
    unsized = _without(_unsized(reads), [] if files is None else [_sized(files)])
    if not len(unsized):
        return files
    sources = [_stated(beside, unsized)]
    head = tables.head(CONTENTS)
    newest = {key[2]: key for key in sorted(head.partitions, key=lambda key: key[1])}
    rows = head.rows_of(newest.values(), _COLUMNS)
    sources.append(_stated(rows, _without(unsized, [_sized(sources[0])])))
    ranked = [*reversed(sources), *([] if files is None else [files])]
    whole = ranked[0]
    for more in ranked[1:]:
        there = pc.is_in(more["did"], value_set=whole["did"].combine_chunks())
        whole = pa.concat_tables([whole, more.filter(pc.invert(there)).select(_COLUMNS)])
    return whole if whole.num_rows else files


def agreed(tables: Tables, dids: pa.Array, stated: pa.Table) -> IntArray:
    """The size of each of `dids` by `stated` (did, size_bytes), as `features.accesses`; < 0: unknown."""
    files = tables.head(FILES).rows(_COLUMNS)
    at = pc.index_in(dids, value_set=files["did"].combine_chunks())
    listed = files["size_bytes"].take(at).fill_null(UNKNOWN).to_numpy()
    return catalogue_first(listed, _most(stated, dids))


def n_unknown(tables: Tables, source: str, days: Sequence[str]) -> int:
    """The number of reads of `source` on `days` of files whose size nothing states."""
    head = tables.head(ACCESSES)
    rows = head.rows_of((key for key in head.partitions if key[0] in days), [*_COLUMNS, "source"])
    reads = rows.filter(pc.equal(rows["source"], source))
    files = catalogue(tables, reads, rows)
    known = [] if files is None else [files["did"].combine_chunks()]
    missing = reads.filter(pc.is_null(reads["size_bytes"]))["did"]
    return len(missing.filter(pc.is_in(missing, value_set=_without(_unsized(reads), known))))


def _sized(rows: pa.Table) -> pa.Array:
    """The files that `rows` state a size of, but 0."""
    return rows["did"].filter(pc.fill_null(pc.greater(rows["size_bytes"], 0), False)).combine_chunks()


def _unsized(reads: pa.Table) -> pa.Array:
    """The files of which no read states a size, but 0."""
    stated = _sized(reads)
    return stated.slice(0, 0) if len(stated) == reads.num_rows else _without(reads["did"].unique(), [stated])


def _without(dids: pa.Array, known: Iterable[pa.Array]) -> pa.Array:
    for some in known:
        dids = dids.filter(pc.invert(pc.is_in(dids, value_set=some)))
    return dids


def _stated(rows: pa.Table, dids: pa.Array) -> pa.Table:
    """The size of each of `dids` that `rows` state."""
    size = _most(rows, dids)
    known = pa.array(size >= 0)
    return pa.table({"did": dids.filter(known), "size_bytes": pa.array(size).filter(known)})


def _most(rows: pa.Table, dids: pa.Array) -> IntArray:
    """The size of each of `dids` that most of `rows` state."""
    rows = rows.filter(pc.and_(pc.is_valid(rows["size_bytes"]), pc.is_in(rows["did"], value_set=dids)))
    place = pc.index_in(rows["did"], value_set=dids).to_numpy()
    return most_stated(place.astype(np.int32), np.array(rows["size_bytes"]), len(dids))
