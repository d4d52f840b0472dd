"""What an evaluation needs, checked before Spark is even imported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from features.common.errors import InputError, SchemaError
from features.common.names import did_parts
from features.common.times import DAY_S, day_label, parse_day
from features.results import EVALUATIONS
from features.schema import ACCESSES, FILES, Table, arrow_schema
from jobs.ground.settings.tree import Settings
from jobs.ground.store.missing_table import no_access
from jobs.ground.store.tables import Tables, read_partitions
from jobs.loop.train.ready import learned_since_s
from replay.read.times import UNITS

LAST_S = 2**32
"""A time after all accesses."""

_NEEDED = ("did", "accessed_at", "size_bytes")


def to_evaluate(settings: Settings, *, accesses: Path | None, from_s: int, to_s: int | None) -> None:
    """Raise InputError or StaleInputError unless there are accesses before `from_s`, and from it to `to_s`.

    The times in `accesses`, a Parquet file, are only looked at if they are timestamps.
    """
    if to_s is not None and to_s < from_s:
        raise InputError(f"--to {day_label(to_s)} is before --from {day_label(from_s)}; exchange them")
    ends_s = _days_of_tables(settings, from_s, to_s) if accesses is None else _days_of_file(accesses)
    if ends_s is not None:
        check_days(*ends_s, from_s=from_s)


def check_days(first_s: int, last_s: int, *, from_s: int) -> None:
    """Raise InputError unless accesses from `first_s` to `last_s` are both before and after `from_s`."""
    if not first_s < from_s <= last_s:
        raise InputError(
            f"there are accesses from {day_label(first_s)} to {day_label(last_s)}; --from "
            f"{day_label(from_s)} must leave some before it, to train on, and some after it"
        )


def check_columns(path: Path, names: Sequence[str]) -> None:
    """Raise SchemaError unless accesses can be made of these columns of a file."""
    if missing := [name for name in _NEEDED if name not in names]:
        raise SchemaError(f"{path.name} has no column {missing[0]!r}; give a table of accesses")


def _days_of_tables(settings: Settings, from_s: int, to_s: int | None) -> tuple[int, int]:
    """The first second of the first day with accesses, and the last second of the last one."""
    tables = Tables.of(settings)
    tables.check_writable(EVALUATIONS)
    first_s, last_s = learned_since_s(settings.features.spec, settings.training, at_s=from_s), to_s or LAST_S
    snapshot = tables.snapshot(ACCESSES)
    partitions = snapshot.select(since=day_label(first_s), until=day_label(last_s))
    days = [parse_day(key[0]) for key, part in partitions.items() if part.n_rows]
    if not days:
        last_s = to_s or from_s
        raise no_access(snapshot, first_s=from_s, last_s=last_s, before_s=from_s - first_s)
    return days[0], days[-1] + DAY_S - 1


def _days_of_file(path: Path) -> tuple[int, int] | None:
    """The first and the last second with an access, if the Parquet file at `path` has such times.

    They are read, not taken from the footer: Arrow ends the process over some damaged statistics.
    """
    if path.is_dir():
        return None
    if not path.is_file():
        raise InputError(f"{path.name} is not a plain file; give a Parquet file of accesses")
    try:
        file = pq.ParquetFile(path)
        check_columns(path, file.schema_arrow.names)
        groups = (file.read_row_group(i, columns=["accessed_at"]) for i in range(file.num_row_groups))
        ends = [end for group in groups for end in _ends(group["accessed_at"])]
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"cannot read {path.name} as Parquet: {first}; write it again") from None
    if not ends:
        return None
    if not 0 <= min(ends) <= max(ends) < LAST_S:
        raise InputError(
            f"{path.name}: accessed_at is from {min(ends)} to {max(ends)} s since 1970, beyond the times of "
            "accesses; correct or drop these rows"
        )
    return min(ends), max(ends)


def _ends(times: pa.ChunkedArray) -> list[int]:
    """The first and the last second of timestamps; nothing of other columns."""
    if not pa.types.is_timestamp(times.type):
        return []
    ends = pc.min_max(times)
    return [ends[end].value // UNITS[times.type.unit] for end in ("min", "max") if ends[end].is_valid]


FROM_FILE = "file"
"""Source of accesses that name none."""


def copy_file(path: Path, tables: Tables) -> None:
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
    named_rows = _with_names(rows)
    defaults = {
        "known_at": rows["accessed_at"] if ends is None else ends,
        "n_reads": pa.repeat(pa.scalar(1, pa.int64()), n),
        "source": pa.repeat(FROM_FILE, n),
        "event_id": pc.binary_join_element_wise(_digest(path), pa.array(range(n)).cast(pa.string()), "-"),
    }
    placed = _fitted(ACCESSES, named_rows, defaults)
    day = pc.strftime(placed["accessed_at"], format="%Y-%m-%d")
    tables.replace_arrow(ACCESSES, placed.append_column("day", day))
    catalogue = path.with_name("files.parquet")
    if catalogue.is_file() and catalogue != path:
        files = _with_names(_read(catalogue))
        begin = pa.scalar(0, pa.timestamp("us", tz="UTC"))
        known = pc.coalesce(files["created_at"], begin) if "created_at" in files.column_names else begin
        known = pa.repeat(begin, files.num_rows) if known is begin else known
        tables.replace_arrow(FILES, _fitted(FILES, files, {"known_at": known}))


def copy_tables(site: Tables, tables: Tables, *, since_s: int, until_s: int) -> None:
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
