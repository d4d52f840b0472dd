"""Which rows and columns of a source are a trace: each column by its role, rows by what is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from features.common.arrays import BoolArray
from features.common.errors import InputError, SchemaError
from replay.read.roles import LABELS, Roles
from replay.read.source import ColumnSource, column_names
from replay.read.times import Ticks
from replay.read.values import UNKNOWN, Codes, Rows, array_of, codes_of, is_text, narrowed, pick

SHOWN_VALUES = 8
"""Values, sites for example, that a message lists."""
_PLURAL = {"site": "sites", "activity": "activities"}
EVERYTHING: Mapping[str, str] = MappingProxyType({})

Column: TypeAlias = Codes | pa.ChunkedArray
"""A column beside the trace; strings are coded."""


class Choice(NamedTuple):
    """Which accesses to keep (None: all), and which columns beside the trace, by role or else by name.

    `only`: those with these values of the roles site or activity.
    """

    only: Mapping[str, str] = EVERYTHING
    since_s: int | None = None
    until_s: int | None = None
    keep: tuple[str, ...] = ()


def columns_beside(source: ColumnSource, roles: Roles, choice: Choice) -> dict[str, Column]:
    """The columns that are not part of the trace itself: those to keep, and those to choose or tell files by.

    Raises SchemaError.
    """
    for role in choice.only.keys() - roles.labels.keys():
        raise SchemaError(f"{source.label} has no column {role} to choose by; it has {column_names(source)}")
    names_or_roles = [*choice.keep, *choice.only, *([] if roles.house else ["dataset"])]
    columns: dict[str, Column] = {}
    for role in dict.fromkeys(names_or_roles):
        name = roles.labels.get(role) if role in LABELS else role
        if name is not None and name in source.schema.names and name not in roles.own:
            column = source.take(name)
            _refuse_nested(source, name, column.type)
            columns[role] = codes_of(column) if is_text(column.type) else column
    return columns


def _refuse_nested(source: ColumnSource, name: str, kind: pa.DataType) -> None:
    if not (is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_null(kind)):
        raise SchemaError(f"{source.label}: {name} is {kind}; it must be strings or numbers")


def chosen_rows(
    source: ColumnSource, ticks: Ticks, rows: Rows, choice: Choice, beside: Mapping[str, Column]
) -> Rows:
    """Those of `rows` that `choice` keeps, by time and the columns of `beside`.

    Raises InputError if none is left, SchemaError.
    """
    is_kept: BoolArray = np.ones(ticks.value.size, np.bool_)
    for role, value in choice.only.items():
        is_kept &= _with(source, role, beside.get(role), value)
    if choice.since_s is not None:
        is_kept &= ticks.value >= choice.since_s * ticks.per_second
    if choice.until_s is not None:
        is_kept &= ticks.value < choice.until_s * ticks.per_second
    if not is_kept.any():
        raise InputError(f"{source.label} has no access in the time asked for; choose others")
    return narrowed(rows, is_kept)


def details(beside: Mapping[str, Column], choice: Choice, rows: Rows) -> pa.Table:
    """The columns of `beside` to keep, for the rows of the trace; strings as dictionaries."""
    return pa.table({name: _picked(beside[name], rows) for name in choice.keep if name in beside})


def _with(source: ColumnSource, role: str, column: Column | None, value: str) -> BoolArray:
    if not isinstance(column, Codes):
        raise SchemaError(
            f"{source.label}: the {role} is no string in each row; name another column by {role}="
        )
    known: list[str] = column.values.to_pylist()
    if value not in known:
        listed = ", ".join(map(str, known[:SHOWN_VALUES])) + (", …" if len(known) > SHOWN_VALUES else "")
        raise InputError(
            f"{source.label} has no access of {role} {value!r}; its {_PLURAL[role]} are {listed}"
        )
    matches: BoolArray = column.code == known.index(value)
    return matches


def _picked(column: Column, rows: Rows) -> pa.Array | pa.ChunkedArray:
    if not isinstance(column, Codes):
        return column if rows is None else column.take(array_of(rows))
    code = pick(rows, column.code)
    return pa.DictionaryArray.from_arrays(array_of(code, absent=code == UNKNOWN), column.values)
