"""Lines of files whose first line names the columns: as columns of text, and `malformed`."""

from __future__ import annotations

import csv
import dataclasses
import functools
from collections.abc import Callable, Sequence

import pyarrow as pa

from features.common.errors import SchemaError
from features.common.names import literal
from jobs.loop.ingest.sources import sql

csv.field_size_limit(2**31 - 1)


@dataclasses.dataclass(frozen=True)
class Header:
    """The `names` of the columns in their order, and the `line` that names them; empty if none does."""

    names: Sequence[str]
    line: str = ""

    @property
    def where(self) -> str:
        """The `where` of records: neither blank nor the header."""
        return f"{sql.LINES} AND value <> {literal(self.line)}"


def csv_header(line: str, path: str, *needs: Sequence[str]) -> Header:
    """The header of a CSV file with this first line, `needs[0]` of an empty one.

    Raises SchemaError unless one of `needs`, sets of columns, is among its columns.
    """
    names = _fields(line) if line else list(needs[0])
    if not any(set(need) <= set(names) for need in needs):
        missing = " or ".join(str(sorted(set(need) - set(names))) for need in needs)
        raise SchemaError(f"{path}: columns {missing} are missing; there are {names}")
    return Header(names, line)


def csv_columns(
    names: Sequence[str], columns: Sequence[str], others: Sequence[str] = ()
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Makes of a batch of CSV lines (value, input) what the steps `fields(columns)` need.

    `others`: columns that only the file names, which become `other 0`, `other 1`, …
    `malformed`: the line has more or fewer fields than `names`.
    """
    called = [*((name, name) for name in columns), *((f"other {i}", name) for i, name in enumerate(others))]
    return functools.partial(
        _columns, len(names), tuple((column, names.index(name)) for column, name in called)
    )


def fields(columns: Sequence[str]) -> list[sql.Columns]:
    """Steps that make the columns `columns` of a CSV file, as texts; see `sql.with_words`."""
    return sql.with_words({name: f"{name} field" for name in columns})


def _columns(n_names: int, places: Sequence[tuple[str, int]], batch: pa.RecordBatch) -> pa.RecordBatch:
    records = [_fields(line) for line in batch["value"].to_pylist()]
    columns = {
        f"{name} field": pa.array(
            [(record[at] or None) if at < len(record) else None for record in records], pa.string()
        )
        for name, at in places
    }
    malformed = pa.array([len(record) != n_names for record in records], pa.bool_())
    return pa.record_batch(
        {"value": batch["value"], "input": batch["input"], "malformed": malformed} | columns
    )


def _fields(line: str) -> list[str]:
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []
