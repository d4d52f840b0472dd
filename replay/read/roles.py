"""Which column of a table has which role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from features.errors import SchemaError
from replay.read.source import Source, column_names, refuse_twice

_USUAL = {
    "time": ("time", "t", "timestamp", "ts", "accessed_at"),
    "item": ("item", "id", "obj_id", "object", "did", "name", "key"),
    "size": ("size", "size_bytes", "bytes", "obj_size"),
}
_OPTIONAL = ("close", "read")
_HOUSE = ("accessed_at", "did", "size_bytes")


class Roles(NamedTuple):
    """Column names by role; None: there is none. `house`: an `accesses` table, which has its own rules."""

    time: str
    item: str
    size: str
    close: str | None = None
    read: str | None = None
    n_reads: str | None = None
    event_id: str | None = None
    house: bool = False


def is_house(source: Source) -> bool:
    """Whether this is an `accesses` table: accessed_at (a timestamp), did and size_bytes."""
    names = source.schema.names
    return all(names.count(name) == 1 for name in _HOUSE) and pa.types.is_timestamp(
        source.schema.field("accessed_at").type
    )


def house_roles(source: Source) -> Roles:
    """The columns of an `accesses` table. Raises SchemaError."""
    names = set(source.schema.names)
    if missing := [name for name in _HOUSE if name not in names]:
        raise SchemaError(f"{source.label} has no column {', '.join(missing)}; it has {column_names(source)}")
    refuse_twice(source, "accessed_at")
    kind = source.schema.field("accessed_at").type
    if not pa.types.is_timestamp(kind):
        raise SchemaError(f"{source.label}: accessed_at is {kind}; it must be a timestamp")
    close, read, n_reads, event_id = (
        name if name in names else None for name in ("closed_at", "read_bytes", "n_reads", "event_id")
    )
    return Roles(*_HOUSE, close=close, read=read, n_reads=n_reads, event_id=event_id, house=True)


def foreign_roles(source: Source, columns: Mapping[str, str]) -> Roles:
    """The columns that `columns` names by role, the others by their usual names. Raises SchemaError."""
    if unknown := [role for role in columns if role not in (*_USUAL, *_OPTIONAL)]:
        known = ", ".join((*_USUAL, *_OPTIONAL))
        raise SchemaError(f"--columns: no role {', '.join(unknown)}; the roles are {known}")
    if absent := [name for name in columns.values() if name not in source.schema.names]:
        raise SchemaError(f"{source.label} has no column {', '.join(absent)}; it has {column_names(source)}")
    time, item, size = (columns.get(role) or _usual(source, role) for role in _USUAL)
    return Roles(time, item, size, close=columns.get("close"), read=columns.get("read"))


def _usual(source: Source, role: str) -> str:
    found = [name for name in source.schema.names if name.lower() in _USUAL[role]]
    if len(found) == 1:
        return str(found[0])
    fault = f"more than one ({', '.join(found)})" if found else "none"
    raise SchemaError(
        f"{source.label}: which column is the {role}? Of the usual names there is {fault} among "
        f"{column_names(source)}; give --columns {role}=NAME"
    )
