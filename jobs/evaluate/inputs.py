"""The tables of a walk-forward evaluation: copies, so that those of the site do not change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from features.common.errors import InputError, SchemaError
from features.common.names import did_parts
from features.common.times import day_label
from features.schema import ACCESSES, FILES, Table, arrow_schema
from jobs.evaluate.ready import check_columns
from jobs.store.tables import Tables, read_partitions

FROM_FILE = "file"
"""Source of accesses that name none."""


def from_file(path: Path, tables: Tables) -> None:
    """Copy the accesses in `path`, and `files.parquet` beside it if it exists, into `tables`.

    Missing columns are derived: scope and name from the did, `known_at` from the end of the read (of a file:
    from its creation), one read per row. Raises InputError, SchemaError.
    """
    rows = _read(path)
    check_columns(path, rows.column_names)
    if not rows.num_rows:
        raise InputError(f"{path.name} holds no access")
    n = rows.num_rows
    ends = pc.coalesce(rows["closed_at"], rows["accessed_at"]) if "closed_at" in rows.column_names else None
    named = _with_names(rows)
    defaults = {
        "known_at": rows["accessed_at"] if ends is None else ends,
        "n_reads": pa.repeat(pa.scalar(1, pa.int64()), n),
        "source": pa.repeat(FROM_FILE, n),
        "event_id": pc.binary_join_element_wise(_digest(path), pa.array(range(n)).cast(pa.string()), "-"),
    }
    placed = _fitted(ACCESSES, named, defaults)
    day = pc.strftime(placed["accessed_at"], format="%Y-%m-%d")
    tables.replace_arrow(ACCESSES, placed.append_column("day", day))
    catalogue = path.with_name("files.parquet")
    if catalogue.is_file() and catalogue != path:
        files = _with_names(_read(catalogue))
        begin = pa.scalar(0, pa.timestamp("us", tz="UTC"))
        known = pc.coalesce(files["created_at"], begin) if "created_at" in files.column_names else begin
        known = pa.repeat(begin, files.num_rows) if known is begin else known
        tables.replace_arrow(FILES, _fitted(FILES, files, {"known_at": known}))


def from_tables(site: Tables, tables: Tables, *, since_s: int, until_s: int) -> None:
    """Copy the site's accesses of the days of `since_s` to `until_s`, and its catalogue, into `tables`."""
    accesses = site.snapshot(ACCESSES)
    days = accesses.select(since=day_label(since_s), until=day_label(until_s))
    pieces = ((key, read_partitions(accesses, {key: part})) for key, part in days.items())
    tables.replace_each(ACCESSES, pieces)
    if site.exists(FILES):
        tables.replace_arrow(FILES, site.read_arrow(FILES))


def _read(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"cannot read {path.name} as Parquet: {error}") from None


def _with_names(rows: pa.Table) -> pa.Table:
    """`rows` with missing scope and name taken from the did, and with a list of origins."""
    dids = rows["did"].cast(pa.string()).combine_chunks()
    parts = did_parts(dids)
    if parts.null_count:
        wrong = dids.filter(pc.is_null(parts))[0].as_py()
        raise SchemaError(f"{wrong!r} is not a DID; write scope:name")
    for name in ("scope", "name"):
        if name not in rows.column_names:
            rows = rows.append_column(name, pc.struct_field(parts, name))
    if "origins" not in rows.column_names and "origin" in rows.column_names:
        origin = rows["origin"].cast(pa.string()).combine_chunks()
        offsets = pa.array(range(len(origin) + 1), pa.int32())
        rows = rows.append_column("origins", pa.ListArray.from_arrays(offsets, origin))
    return rows


def _fitted(table: Table, rows: pa.Table, defaults: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """The columns of `table`: from `rows`, else from `defaults`, else null."""
    columns = {}
    for field in arrow_schema(table):
        if field.name in rows.column_names:
            columns[field.name] = rows[field.name].cast(field.type)
        elif field.name in defaults:
            columns[field.name] = defaults[field.name].cast(field.type)
        else:
            columns[field.name] = pa.nulls(rows.num_rows, field.type)
    return pa.table(columns)


def _digest(path: Path) -> str:
    """A text that distinguishes the events of this file from those of others."""
    return hashlib.sha256(path.name.encode()).hexdigest()[:12]
