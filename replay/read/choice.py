"""Which rows and columns of a source are a trace: each column by its role, rows by what is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from features.common.arrays import BoolArray
from features.common.errors import InputError, SchemaError
from replay.read.source import Source, column_names, refuse_twice
from replay.read.times import Ticks
from replay.read.values import UNKNOWN, Codes, Rows, array_of, codes_of, is_text, narrowed, pick

SHOWN_SITES = 8
"""Sites that a message lists."""

Column: TypeAlias = Codes | pa.ChunkedArray
"""A column beside the trace; strings are coded."""


class Choice(NamedTuple):
    """Which accesses to keep (None: all), and which columns beside the trace."""

    site: str | None = None
    since_s: int | None = None
    until_s: int | None = None
    keep: tuple[str, ...] = ()


def columns_beside(source: Source, roles: Roles, choice: Choice) -> dict[str, Column]:
    """The columns that are not part of the trace itself: those to keep, and the site if it is chosen by.

    Raises SchemaError.
    """
    available = [name for name in source.schema.names if name not in roles]
    if choice.site is not None and "site" not in available:
        raise SchemaError(f"{source.label} has no column site to choose by; it has {column_names(source)}")
    wanted = dict.fromkeys([*choice.keep, *([] if choice.site is None else ["site"])])
    found: dict[str, Column] = {}
    for name in wanted:
        if name in available:
            column = source.take(name)
            _refuse_nested(source, name, column.type)
            found[name] = codes_of(column) if is_text(column.type) else column
    return found


def _refuse_nested(source: Source, name: str, kind: pa.DataType) -> None:
    if not (is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_null(kind)):
        raise SchemaError(f"{source.label}: {name} is {kind}; it must be strings or numbers")


def chosen_rows(source: Source, ticks: Ticks, rows: Rows, choice: Choice, sites: Column | None) -> Rows:
    """Those of `rows` that `choice` keeps, by site and time; `sites` is the column site, if there is one.

    Raises InputError if none is left, SchemaError.
    """
    kept: BoolArray = np.ones(ticks.value.size, np.bool_)
    if choice.site is not None:
        kept = _of_site(source, sites, choice.site)
    if choice.since_s is not None:
        kept &= ticks.value >= choice.since_s * ticks.per_second
    if choice.until_s is not None:
        kept &= ticks.value < choice.until_s * ticks.per_second
    if not kept.any():
        raise InputError(f"{source.label} has no access in the time asked for; choose other days or sites")
    return narrowed(rows, kept)


def details(beside: Mapping[str, Column], choice: Choice, rows: Rows) -> pa.Table:
    """The columns of `beside` to keep, for the rows of the trace; strings as dictionaries."""
    return pa.table({name: _picked(beside[name], rows) for name in choice.keep if name in beside})


def _of_site(source: Source, sites: Column | None, site: str) -> BoolArray:
    if not isinstance(sites, Codes):
        raise SchemaError(f"{source.label}: site is {source.schema.field('site').type}; it must be strings")
    known: list[str] = sites.values.to_pylist()
    if site not in known:
        listed = ", ".join(known[:SHOWN_SITES]) + (", …" if len(known) > SHOWN_SITES else "")
        raise InputError(f"{source.label} has no access of site {site!r}; its sites are {listed}")
    kept: BoolArray = sites.code == known.index(site)
    return kept


def _picked(column: Column, rows: Rows) -> pa.Array | pa.ChunkedArray:
    if not isinstance(column, Codes):
        return column if rows is None else column.take(array_of(rows))
    code = pick(rows, column.code)
    return pa.DictionaryArray.from_arrays(array_of(code, absent=code == UNKNOWN), column.values)


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
