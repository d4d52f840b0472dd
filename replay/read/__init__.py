"""Traces read from files: the `accesses` table, any Parquet or CSV, and libCacheSim's formats."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from features.common.errors import InputError
from replay.read import formats
from replay.read.assemble import EVERYTHING, Choice, LoadedTrace, assemble
from replay.read.files import missing_size_of
from replay.read.formats import LCS, ORACLE
from replay.read.roles import Roles, foreign_roles, house_roles, is_house
from replay.read.source import ColumnSource, TableSource, parquet
from replay.read.times import UNITS, Clock, check_zone

__all__ = ["KINDS", "LoadedTrace", "read_trace"]

KINDS = ("auto", "accesses", "table", ORACLE, LCS)
"""Values of `kind`; `accesses` and `table` are Parquet or CSV, whichever the content is."""

_AS_THEY_ARE: Mapping[str, str] = MappingProxyType({})
_BINARY = {ORACLE: formats.read_oracle_general, LCS: formats.read_lcs}


def read_trace(
    given: Path | TableSource,
    *,
    columns: Mapping[str, str] = _AS_THEY_ARE,
    time_unit: str = "s",
    time_zone: str | None = None,
    kind: str = "auto",
    only: Mapping[str, str] = EVERYTHING,
    since_s: int | None = None,
    until_s: int | None = None,
    keep: Sequence[str] = (),
    sort: bool = False,
    missing_size: str | int | None = None,
) -> LoadedTrace:
    """The trace in a file or folder, or a table in memory; `docs/replay.md` lists kinds and faulty rows.

    `columns`: the columns by role (`replay.read.roles`); an empty name: none has it. `time_unit` (s, ms, us,
    ns): the unit of times that are numbers, or a format of `strptime` for strings; timestamps have their own.
    `time_zone`: that of times which state none (None: UTC).
    Only accesses with since_s <= time < until_s, and `only` these values of the roles site and activity, are
    kept. `keep`: columns to keep beside the trace, by role or else by name, if they exist. `sort`: sort a
    foreign table by time. `missing_size`: what becomes of its rows that state no size: `first`, the size that
    others state first of the file, and without one the row is dropped; `drop`; or the bytes, as `2GB`, of
    files that no row states; None: an error. Raises InputError, SchemaError.
    """
    if kind not in KINDS:
        raise InputError(f"no trace kind {kind!r}; choose one of {', '.join(KINDS)}")
    if time_unit not in UNITS and "%" not in time_unit.replace("%f", ""):
        raise InputError(
            f"no time unit {time_unit!r}; choose one of {', '.join(UNITS)}, or a format like %d/%m/%Y"
        )
    check_zone(time_zone)
    choice = Choice(only, since_s, until_s, tuple(keep), missing_size_of(missing_size))
    catalogue = None
    if isinstance(given, TableSource):
        source: ColumnSource = given
        roles = _roles(source, kind, columns)
    else:
        if not given.exists():
            raise InputError(f"there is no trace {given}; check the path")
        accesses, files = formats.house_parts(given)
        catalogue = None if files is None else parquet(files, repeated=False)
        form = kind if kind in _BINARY else formats.kind_of(accesses, table=kind != "auto")
        if form in _BINARY:
            source, roles = _BINARY[form](accesses), Roles("time", "item", "size")
        else:
            source = parquet(accesses) if form == "parquet" else formats.read_csv(accesses)
            roles = _roles(source, kind, columns)
            if isinstance(source, TableSource):
                source = formats.as_written(accesses, source, (roles.item, *roles.labels.values(), *keep))
    return assemble(source, roles, choice, clock=Clock(time_unit, time_zone), sort=sort, files=catalogue)


def _roles(source: ColumnSource, kind: str, columns: Mapping[str, str]) -> Roles:
    is_ours = kind == "accesses" or (kind == "auto" and is_house(source, columns))
    return (house_roles if is_ours else foreign_roles)(source, columns)
