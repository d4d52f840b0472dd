"""Which rows and columns of a source are a trace: each column by its role, rows by what is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from features.common.arrays import BoolArray
from features.common.errors import InputError, SchemaError
from replay.read.roles import LABELS, Roles
from replay.read.source import Source, column_names
from replay.read.times import Ticks
from replay.read.values import UNKNOWN, Codes, Rows, array_of, codes_of, is_text, narrowed, pick

SHOWN_SITES = 8
"""Sites that a message lists."""

Column: TypeAlias = Codes | pa.ChunkedArray
"""A column beside the trace; strings are coded."""


class Choice(NamedTuple):
    """Which accesses to keep (None: all), and which columns beside the trace, by role or else by name."""

    site: str | None = None
    since_s: int | None = None
    until_s: int | None = None
    keep: tuple[str, ...] = ()


def columns_beside(source: Source, roles: Roles, choice: Choice) -> dict[str, Column]:
    """The columns that are not part of the trace itself: those to keep, and those to choose or tell files by.

    Raises SchemaError.
    """
    if choice.site is not None and "site" not in roles.labels:
        raise SchemaError(f"{source.label} has no column site to choose by; it has {column_names(source)}")
    wanted = [*choice.keep, *([] if choice.site is None else ["site"]), *([] if roles.house else ["dataset"])]
    found: dict[str, Column] = {}
    for role in dict.fromkeys(wanted):
        name = roles.labels.get(role) if role in LABELS else role
        if name is not None and name in source.schema.names and name not in roles.own:
            column = source.take(name)
            _refuse_nested(source, name, column.type)
            found[role] = codes_of(column) if is_text(column.type) else column
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
        raise SchemaError(f"{source.label}: the site is no string in each row; name another column by site=")
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
