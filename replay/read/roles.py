"""Roles of a trace's columns: their usual names, which column has which, and what that leaves unused.

Every command that takes a trace knows these roles and no others.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from features.common.errors import SchemaError
from replay.read.source import ColumnSource, column_names, refuse_twice
from replay.read.values import is_text

ACCESS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "time": ("time", "t", "timestamp", "ts", "accessed_at", "date", "datetime"),
        "item": (
            *("item", "id", "obj_id", "object", "did", "name", "key"),
            *("path", "file", "filename", "file_name", "lfn"),
        ),
        "size": ("size", "size_bytes", "bytes", "obj_size", "filesize", "file_size"),
    }
)
"""Usual names of the columns that every trace has, by role."""
EXTENT: Mapping[str, Sequence[str]] = MappingProxyType(
    {"close": ("close", "closed_at", "close_time"), "read": ("read", "read_bytes", "bytes_read")}
)
"""Usual names of columns that say how long an access took, and how much of the file it read."""
LABELS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "dataset": ("dataset", "dataset_name"),
        "user": ("user", "username", "user_name", "user_id", "ip", "client", "client_ip"),
        "task": ("task", "task_id", "taskid", "job", "job_id"),
        "category": ("category",),
        "tier": ("tier", "data_tier"),
        "origin": ("origin",),
        "site": ("site",),
        "activity": ("activity",),
    }
)
"""Usual names of columns that describe an access, by role."""
USUAL: Mapping[str, Sequence[str]] = MappingProxyType({**ACCESS, **EXTENT, **LABELS})
_HOUSE = ("accessed_at", "did", "size_bytes")
_NOTHING: Mapping[str, str] = MappingProxyType({})
GENERATED = "generated"
"""Entry of a Parquet file's schema that says what its accesses were generated from."""
SHOWN = 12
"""Unused columns that a note lists."""


class Roles(NamedTuple):
    """Column names by role; None: there is none. `house`: an `accesses` table, which has its own rules.

    `labels`: the columns of those roles of `LABELS` that the source has.
    """

    time: str
    item: str
    size: str
    close: str | None = None
    read: str | None = None
    n_reads: str | None = None
    event_id: str | None = None
    house: bool = False
    labels: Mapping[str, str] = _NOTHING

    @property
    def own(self) -> set[str | None]:
        """The columns that the trace itself is made of."""
        return {self.time, self.item, self.size, self.close, self.read, self.n_reads, self.event_id}


def is_house(source: ColumnSource, given: Mapping[str, str]) -> bool:
    """Whether this is an `accesses` table: accessed_at (a timestamp), did and size_bytes.

    Not if `given` names other columns for the accesses themselves.
    """
    names = source.schema.names
    return (
        all(role in LABELS for role in given)
        and all(names.count(name) == 1 for name in _HOUSE)
        and pa.types.is_timestamp(source.schema.field("accessed_at").type)
    )


def house_roles(source: ColumnSource, given: Mapping[str, str] = _NOTHING) -> Roles:
    """The columns of an `accesses` table, with the labels that `given` names. Raises SchemaError."""
    names = set(source.schema.names)
    if missing := [name for name in _HOUSE if name not in names]:
        raise SchemaError(f"{source.label} has no column {', '.join(missing)}; it has {column_names(source)}")
    refuse_twice(source, "accessed_at")
    kind = source.schema.field("accessed_at").type
    if not pa.types.is_timestamp(kind):
        raise SchemaError(f"{source.label}: accessed_at is {kind}; it must be a timestamp")
    twice = [f"column {name} has a role already" for name in given.values() if name in _HOUSE]
    _refuse(source, _misnamed(source, given) + twice)
    close, read, n_reads, event_id = (
        name if name in names else None for name in ("closed_at", "read_bytes", "n_reads", "event_id")
    )
    labels = {role: role for role in LABELS if role in names} | dict(given)
    return Roles(*_HOUSE, close, read, n_reads, event_id, house=True, labels=_named(labels))


def foreign_roles(source: ColumnSource, given: Mapping[str, str]) -> Roles:
    """The columns that `given` names by role (an empty name: none), the others by their usual names.

    Of several candidates, the one that is called as its role has it; else an error asks which. Raises
    SchemaError, one for all that is wrong.
    """
    faults, columns = _misnamed(source, given), dict(given)
    taken = set(columns.values())
    for role in USUAL:
        if role in given:
            continue
        names = [name for name in source.schema.names if name.lower() in USUAL[role] and name not in taken]
        names = [name for name in names if name.lower() == role] or names
        if role in ACCESS and len(names) != 1:
            which = f"one of {', '.join(names)}" if names else "none has a usual name"
            faults.append(f"which column is the {role} ({which}); give --columns {role}=NAME")
        elif names and (role in ACCESS or _fits(source, role, names[0])):
            columns[role] = names[0]
            taken.add(names[0])
    _refuse(source, faults)
    columns = _named(columns)
    labels = {role: columns[role] for role in LABELS if role in columns}
    time, item, size = (columns[role] for role in ACCESS)
    return Roles(time, item, size, columns.get("close"), columns.get("read"), labels=labels)


def note(source: ColumnSource, roles: Roles) -> tuple[str, ...]:
    """What a source says of itself: that it was generated; which columns of a foreign table have which role.

    Nothing of a foreign table of times, items and sizes alone.
    """
    if (generated := (source.schema.metadata or {}).get(GENERATED.encode())) is not None:
        return (f"Generated data, not a site's: {generated.decode(errors='replace')[:200]}",)
    named = {role: getattr(roles, role) for role in (*ACCESS, *EXTENT)} | dict(roles.labels)
    others = [name for name in source.schema.names if name not in named.values()]
    if roles.house or len(source.schema.names) == len(ACCESS):
        return ()
    used = (role if role == name else f"{role}={name}" for role, name in named.items() if name is not None)
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    unused = f"; no role: {', '.join(others[:SHOWN])}{more}" if others else ""
    return (f"columns by role: {', '.join(used)}{unused}",)


def _named(roles: Mapping[str, str]) -> dict[str, str]:
    return {role: name for role, name in roles.items() if name}


def _fits(source: ColumnSource, role: str, name: str) -> bool:
    """Whether a column that nobody named can have this role by its type."""
    if source.schema.names.count(name) > 1:
        return False
    kind = source.schema.field(name).type
    if role in EXTENT:
        is_time = role == "close" and (pa.types.is_timestamp(kind) or is_text(kind))
        return bool(is_time or pa.types.is_integer(kind) or pa.types.is_floating(kind))
    return bool(is_text(kind) or pa.types.is_primitive(kind))


def _misnamed(source: ColumnSource, given: Mapping[str, str]) -> list[str]:
    """What is wrong with the names that are given."""
    names = [name for name in given.values() if name]
    faults = [
        f"there is no role {role}; the roles are {', '.join(USUAL)}" for role in given if role not in USUAL
    ]
    faults += [f"there is no column {name}" for name in names if name not in source.schema.names]
    faults += [
        f"no column is the {role}; give --columns {role}=NAME" for role in ACCESS if given.get(role) == ""
    ]
    twice = dict.fromkeys(name for name in names if names.count(name) > 1)
    return faults + [f"column {name} is given two roles" for name in twice]


def _refuse(source: ColumnSource, faults: Sequence[str]) -> None:
    if faults:
        raise SchemaError(f"{source.label}: {'; '.join(faults)}. It has {column_names(source)}")
