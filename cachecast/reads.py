"""Traces from files, from tables in memory, and from generated workloads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from features.common.errors import InputError
from replay import read
from replay.access_context import CONTEXT
from replay.read import LoadedTrace
from replay.read.assemble import EVERYTHING, Choice, assemble
from replay.read.files import missing_size_of
from replay.read.roles import foreign_roles, house_roles, is_house
from replay.read.source import TableSource
from replay.read.times import Clock
from replay.read.zones import check_zone
from replay.trace import Trace

Reads = LoadedTrace | Trace | str | os.PathLike[str] | Any
_NO_COLUMNS: Mapping[str, str] = {}


def read_trace(
    source: Any,
    *,
    columns: Mapping[str, str] = _NO_COLUMNS,
    time_unit: str = "s",
    time_zone: str | None = None,
    kind: str = "auto",
    sort: bool = False,
    missing_size: str | int | None = None,
) -> LoadedTrace:
    """The trace in a file or folder (by its path), a DataFrame, an Arrow table, or a dict of columns.

    `.trace` has the accesses, `.notes` a sentence for each rule that changed or dropped rows. `columns`: the
    columns by role, where their names are not the usual ones; `time_unit`: of times that are numbers;
    `time_zone`: of times that state none; `kind`: of a file; `sort`: by time; `missing_size`: first, drop
    or the bytes of rows without a size. docs/replay.md lists roles, kinds and faults. Raises CachecastError.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"when": [1, 2, 3], "file": ["a", "b", "a"], "size": [10, 20, 10]})
    >>> reads = read_trace(frame, columns={"time": "when"})
    >>> reads.trace.n_accesses, reads.trace.footprint_bytes
    (3, 30)
    """
    _check_words(columns, time_unit=time_unit, kind=kind)
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        return read.read_trace(
            path,
            columns=columns,
            time_unit=time_unit,
            time_zone=time_zone,
            kind=kind,
            sort=sort,
            missing_size=missing_size,
            keep=CONTEXT,
        )
    check_zone(time_zone)
    table = TableSource("the table", _arrow(source))
    is_ours = kind == "accesses" or (kind == "auto" and is_house(table, columns))
    roles = house_roles(table, columns) if is_ours else foreign_roles(table, columns)
    choice = Choice(EVERYTHING, keep=CONTEXT, missing_size=missing_size_of(missing_size))
    return assemble(table, roles, choice, clock=Clock(time_unit, time_zone), sort=sort)


def generate(
    scenario: str, *, accesses: int | None = None, days: int | None = None, seed: int = 1
) -> LoadedTrace:
    """A generated trace: `scenario` is a name in docs/workload.md, or a TOML file. Raises CachecastError.

    >>> generate("mwt2", accesses=1000).trace.n_items > 100
    True
    """
    from jobs.studies.simulate import workload  # noqa: PLC0415  few generate

    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        workload.write(workload.load(scenario, seed=seed, days=days, accesses=accesses), out=Path(folder))
        return read_trace(folder)


def loaded(reads: Reads) -> LoadedTrace:
    """`reads` as `read_trace` gives it."""
    if isinstance(reads, LoadedTrace):
        return reads
    if isinstance(reads, Trace):
        return LoadedTrace(reads, pa.table({}), ())
    return read_trace(reads)


def _arrow(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    index = getattr(source, "index", None)
    if index is not None and hasattr(source, "reset_index") and not any(index.names):
        source = source.reset_index(drop=True)
    if not (isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__")):
        raise InputError(
            "a trace is a path, a DataFrame, an Arrow table, a dict of columns, or what read_trace returns, "
            f"not {type(source).__name__}"
        )
    try:
        return pa.table(dict(source) if isinstance(source, Mapping) else source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"the table cannot be read: {str(error).splitlines()[0]}") from None


def _check_words(columns: object, **words: object) -> None:
    if not isinstance(columns, Mapping) or not all(
        isinstance(one, str) for pair in columns.items() for one in pair
    ):
        raise InputError(f"columns are names by role, for example {{'time': 'when'}}, not {columns!r:.60}")
    for name, word in words.items():
        if not isinstance(word, str):
            raise InputError(f"{name} is a word, not {word!r:.60}")
