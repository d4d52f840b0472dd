"""A DuckDB database in which a pull turns raw records into rows; it lives as long as the pull.

It reads nothing but Arrow batches that it is given, and spills to a folder of its own. Nothing in it comes
from the network.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from features.schema import Table, arrow_schema
from jobs.ingest.sources.sql import Query

MOST_LINE_BYTES = 16 * 2**20
"""Of one line; what is longer is cut there, which makes no record of it."""

MEMORY = "2GB"
"""What a workspace holds in memory; the rest is in its folder."""

_Settings = dict[str, str | bool | int | float | list[str]]
_ROWS_AT_ONCE = 100_000
_TYPES = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "strings": "VARCHAR[]",
}
_VERDICT = {"reason": "VARCHAR", "sample": "VARCHAR", "input": "VARCHAR"}


def parsed_schema(table: Table) -> pa.Schema:
    """Columns of parsed rows: those of `table`, all nullable, then `reason`, `sample` and `input`."""
    fields = [field.with_nullable(True) for field in arrow_schema(table)]
    return pa.schema([*fields, *(pa.field(name, pa.string()) for name in _VERDICT)])


def parse(query: Query, batches: Iterable[pa.RecordBatch], *, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of `batches` of raw records, about `rows` records at a time, on one core.

    Lines (`value`) are bytes.
    """
    with _connected({"threads": 1}) as database:
        schema = parsed_schema(query.table)
        for some in _gathered(batches, rows):
            for raw in some.combine_chunks().to_batches():
                batch = lines_of(raw) if "value" in raw.schema.names else raw
                database.register("raw", pa.table(_prepared(query, batch)))
                found = database.sql(query.text).to_arrow_table()
                yield from found.cast(schema).to_batches()


class Workspace:
    """Rows of one table, as `parsed`, from any number of raw records. Use it within `opened`."""

    def __init__(self, database: duckdb.DuckDBPyConnection, table: Table) -> None:
        self.database, self.table = database, table
        columns = {column.name: _TYPES[column.kind] for column in table.columns} | _VERDICT
        self._create("parsed", columns)

    def take(self, query: Query, batches: Iterable[pa.RecordBatch]) -> None:
        """Add the rows of raw records, batches of one schema. Raises what `batches` raises."""
        prepared = (_prepared(query, batch) for batch in batches)
        first = next(prepared, None)
        if first is None:
            return
        failures: list[Exception] = []
        stream = _watched(itertools.chain([first], prepared), failures)
        self.database.register("raw", pa.RecordBatchReader.from_batches(first.schema, stream))
        try:
            self.database.execute(f"INSERT INTO parsed {query.text}")
        except duckdb.Error:
            if failures:
                raise failures[0] from None
            raise
        finally:
            self.database.unregister("raw")

    def put(self, name: str, columns: Iterable[str], tables: Iterable[pa.Table]) -> None:
        """A new table `name` of rows of the table, with the text columns `columns` beside its own."""
        types = {column.name: _TYPES[column.kind] for column in self.table.columns}
        self._create(name, types | dict.fromkeys(columns, "VARCHAR"))
        for rows in tables:
            self.database.register("more", rows.cast(_without_zones(rows.schema)))
            self.database.execute(f'INSERT INTO "{name}" BY NAME SELECT * FROM more')
            self.database.unregister("more")

    def found(self, text: str) -> pa.Table:
        """The answer to a SELECT."""
        return self.database.sql(text).to_arrow_table()

    def batches(self, text: str) -> Iterator[pa.RecordBatch]:
        """The answer to a SELECT, a batch at a time."""
        yield from self.database.sql(text).to_arrow_reader(_ROWS_AT_ONCE)

    def _create(self, name: str, types: dict[str, str]) -> None:
        columns = ", ".join(f'"{column}" {kind}' for column, kind in types.items())
        self.database.execute(f'CREATE TABLE "{name}" ({columns})')


@contextmanager
def opened(table: Table) -> Iterator[Workspace]:
    """A workspace for rows of `table`."""
    folder = Path(tempfile.mkdtemp(prefix="cachecast-pull-"))
    settings: _Settings = {
        "memory_limit": MEMORY,
        "temp_directory": str(folder),
        "preserve_insertion_order": False,
    }
    try:
        with _connected(settings) as database:
            yield Workspace(database, table)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lines_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch` with `value` as text: cut where it is too long, with bytes that are no UTF-8 replaced."""
    values = batch["value"]
    if (pc.max(pc.binary_length(values)).as_py() or 0) > MOST_LINE_BYTES:
        values = pc.binary_slice(values, 0, MOST_LINE_BYTES)
    return batch.set_column(batch.schema.get_field_index("value"), "value", _text(values))


def _without_zones(schema: pa.Schema) -> pa.Schema:
    """`schema` with times as DuckDB's TIMESTAMP: in UTC, without saying so."""
    fields = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
        for field in schema
    ]
    return pa.schema(fields)


def _text(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode(errors="replace") for value in values.to_pylist()], pa.string())


def _prepared(query: Query, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch if query.prepare is None else query.prepare(batch)


def _gathered(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """`batches` together, until they have `rows` rows."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(one.num_rows for one in some) >= rows:
            yield pa.Table.from_batches(some)
            some = []
    if some:
        yield pa.Table.from_batches(some)


def _watched(batches: Iterator[pa.RecordBatch], failures: list[Exception]) -> Iterator[pa.RecordBatch]:
    # DuckDB tells a failure of what it reads in its own words.
    try:
        yield from batches
    except Exception as error:
        failures.append(error)
        raise


@contextmanager
def _connected(settings: _Settings) -> Iterator[duckdb.DuckDBPyConnection]:
    closed: _Settings = {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with duckdb.connect(config=closed | settings) as database:
        database.execute("SET TimeZone = 'UTC'")
        yield database
