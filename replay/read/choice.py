"""Which rows of a source become accesses, and which of its columns are kept beside the trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from features.arrays import BoolArray
from features.errors import InputError, SchemaError
from replay.read.bridge import array_of
from replay.read.roles import Roles
from replay.read.rows import Rows, narrowed, pick
from replay.read.source import Source, column_names
from replay.read.times import Ticks
from replay.read.values import UNKNOWN, Codes, codes_of, is_text

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
