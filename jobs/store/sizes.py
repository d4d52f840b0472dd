"""The sizes of files whose reads state none: from other records, the catalogue, and what caches hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.schema import ACCESSES, CONTENTS, FILES
from jobs.store.tables import Tables, read_partitions

_COLUMNS = ["did", "size_bytes"]


def catalogue(tables: Tables, reads: pa.Table, beside: pa.Table) -> pa.Table | None:
    """The files table (did, size_bytes), and what else is known of the files of `reads` without a size.

    That is what other sources state in `beside`, accesses of the same days, else the newest inventory of a
    cache. None if there is neither a file nor a size.
    """
    files = tables.read_arrow(FILES, columns=_COLUMNS) if tables.exists(FILES) else None
    known = [] if files is None else [files["did"].combine_chunks()]
    unsized = _without(_unsized(reads), known)
    more = [] if not len(unsized) else [_stated(beside, unsized)]
    if more:
        more.append(_in_caches(tables, _without(unsized, [more[0]["did"].combine_chunks()])))
    found = [table for table in (files, *more) if table is not None and table.num_rows]
    return pa.concat_tables(table.select(_COLUMNS) for table in found) if found else files


def n_unknown(tables: Tables, source: str, days: Sequence[str]) -> int:
    """The number of reads of `source` on `days` of files whose size nothing states."""
    head = tables.head(ACCESSES)
    chosen = {key: part for key, part in head.partitions.items() if key[0] in set(days)}
    rows = read_partitions(head, chosen, [*_COLUMNS, "source"])
    reads = rows.filter(pc.equal(rows["source"], source))
    files = catalogue(tables, reads, rows)
    known = [] if files is None else [files["did"].combine_chunks()]
    missing = reads.filter(pc.is_null(reads["size_bytes"]))["did"]
    return len(missing.filter(pc.is_in(missing, value_set=_without(_unsized(reads), known))))


def _unsized(reads: pa.Table) -> pa.Array:
    """The files of which no read states the size."""
    if not reads["size_bytes"].null_count:
        return reads["did"].slice(0, 0).combine_chunks()
    has_size = pc.is_valid(reads["size_bytes"])
    stated = reads["did"].filter(has_size).combine_chunks()
    return _without(reads["did"].filter(pc.invert(has_size)).unique(), [stated])


def _without(dids: pa.Array, known: Iterable[pa.Array]) -> pa.Array:
    for some in known:
        dids = dids.filter(pc.invert(pc.is_in(dids, value_set=some)))
    return dids


def _stated(rows: pa.Table, dids: pa.Array) -> pa.Table:
    """The size of each of `dids` that `rows` state; of several the largest."""
    wanted = pc.and_(pc.is_valid(rows["size_bytes"]), pc.is_in(rows["did"], value_set=dids))
    sizes = rows.filter(wanted).group_by("did").aggregate([("size_bytes", "max")])
    return sizes.rename_columns({"size_bytes_max": "size_bytes"})


def _in_caches(tables: Tables, dids: pa.Array) -> pa.Table:
    """The size of each of `dids` that the newest inventory of a cache shows."""
    head = tables.head(CONTENTS)
    newest = {key[2]: key for key in sorted(head.partitions, key=lambda key: key[1])}
    rows = read_partitions(head, {key: head.partitions[key] for key in newest.values()}, _COLUMNS)
    return _stated(rows, dids)
