"""A DuckDB database in which a pull turns raw records into rows; it lives as long as the pull.

It reads nothing but Arrow batches that it is given, and spills to a folder of its own. Nothing in it comes
from the network.
"""

import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

import duckdb
import pyarrow as pa

from features.common.arrays import pages
from features.common.errors import NotPlainError
from features.common.input_files import InputFile
from features.schema import ACCESSES, Table, arrow_schema
from jobs.ground.store.locks import scratch_folder
from jobs.loop.ingest.sources import Site
from jobs.loop.ingest.sources.sql import Query

MEMORY = "2GB"  # what a workspace holds in memory; the rest is in its folder
_Settings = dict[str, str | bool | int | float | list[str]]
_MOST_CORES = 8
_ROWS_AT_ONCE = 100_000
_ROWS_AS_OBJECTS = 20_000
_TYPES = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "strings": "VARCHAR[]",
}
_VERDICT = ("reason", "sample", "input")


def parsed_schema(table: Table) -> pa.Schema:
    """Columns of parsed rows: those of `table`, all nullable, then `reason`, `sample` and `input`."""
    fields = [field.with_nullable(True) for field in arrow_schema(table)]
    return pa.schema([*fields, *(pa.field(name, pa.string()) for name in _VERDICT)])


def refusals(table: Table, refused: Iterable[tuple[str, NotPlainError]]) -> pa.Table:
    """Parsed rows, one a refused input (its URI, and why)."""
    rows = [{"reason": f"not a plain file: {why.kind}", "input": uri} for uri, why in refused]
    return pa.Table.from_pylist(rows, parsed_schema(table))


def parse(query: Query, batches: Iterable[pa.RecordBatch], *, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of raw records, batches of one schema, about `rows` at a time, on one core."""
    schema, shared = parsed_schema(query.table), _Shared(_prepared(query, batches))
    first = next(shared, None)
    if first is None:
        return
    with _connected({"threads": 1}) as database, shared.failing():
        stream = itertools.chain([first], shared)
        database.register("raw", pa.RecordBatchReader.from_batches(first.schema, stream))
        # One statement for all of them: planning it takes as long as parsing thousands of records.
        for rows_read in database.sql(query.text).to_arrow_reader(rows):
            yield rows_read.cast(schema)


class Workspace:
    """Rows of one table, as `parsed`, from any number of raw records. Use it within `opened`.

    `unpaired`: rows of that table, which the pull leaves, with their day; `alarms`: for its answer.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection, table: Table) -> None:
        self.database, self.table = database, table
        self._refused: list[tuple[str, NotPlainError]] = []
        self.put("parsed", _VERDICT, [])
        database.execute("CREATE TABLE retracted (event_id VARCHAR, day VARCHAR)")
        self.unpaired: pa.Table | None = None
        self.alarms: list[str] = []

    def take(self, query: Query, batches: Iterable[pa.RecordBatch]) -> None:
        """Add the rows of raw records, batches of one schema, on all cores. Raises what `batches` raises."""
        shared = _Shared(_prepared(query, batches))
        begins = list(itertools.islice(shared, 2))
        if not begins:
            return
        # Parsed once: that takes as long as planning, which each core does for itself.
        [insert] = self.database.extract_statements(f"INSERT INTO parsed {query.text}")
        n_cores = min(_MOST_CORES, len(os.sched_getaffinity(0))) if len(begins) > 1 else 1
        schema, stream = begins[0].schema, itertools.chain(begins, shared)
        with shared.failing(), ThreadPoolExecutor(n_cores) as pool:
            works = [pool.submit(self._insert, insert, schema, stream)]
            works += [pool.submit(self._insert, insert, schema, shared) for _ in range(1, n_cores)]
            try:
                for work in works:
                    work.result()
            finally:
                shared.end()

    def keep(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], name: str = "raw") -> None:
        """Hold records as the table `name`; `raw` is for `parse_kept`. Raises what `batches` raises."""
        shared = _Shared(iter(batches))
        with shared.failing():
            self.database.register("records", pa.RecordBatchReader.from_batches(schema, shared))
            self.database.execute(f'CREATE TABLE "{name}" AS SELECT * FROM records')
            self.database.unregister("records")

    def parse_kept(self, query: Query) -> None:
        """Add the rows of the records of `raw`."""
        self.database.execute(f"INSERT INTO parsed {query.text}")

    def retract(self, events: str) -> None:
        """Take back the accesses of this pull and earlier ones whose event_id the SELECT `events` gives."""
        self.database.execute(f"INSERT INTO retracted {events}")
        self.database.execute(
            "DELETE FROM parsed WHERE reason IS NULL AND event_id IN (SELECT event_id FROM retracted)"
        )

    def refuse(self, uri: str, why: NotPlainError) -> None:
        """Count the input `uri` as refused."""
        self._refused.append((uri, why))

    def count_refused(self) -> None:
        """Add a row per refused input to `parsed`."""
        self.add([("parsed", refusals(self.table, self._refused))])
        self._refused.clear()

    def _insert(self, insert: duckdb.Statement, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        # DuckDB reads a stream on one core, so each core has a connection of its own.
        with self.database.cursor() as connection:
            connection.register("raw", pa.RecordBatchReader.from_batches(schema, batches))
            connection.execute(insert)

    def put(self, name: str, columns: Iterable[str], tables: Iterable[pa.Table]) -> None:
        """A new table `name` of rows of the table, with the text columns `columns` beside its own."""
        types = {column.name: _TYPES[column.kind] for column in self.table.columns}
        types |= dict.fromkeys(columns, "VARCHAR")
        fields = ", ".join(f'"{column}" {kind}' for column, kind in types.items())
        self.database.execute(f'CREATE TABLE "{name}" ({fields})')
        self.add((name, rows) for rows in tables)

    def add(self, pieces: Iterable[tuple[str, pa.Table]]) -> None:
        """Add rows to tables, each piece to the table that it names, by the names of their columns."""
        self.database.begin()  # pieces that are committed one by one are copied again and again
        for name, rows in pieces:
            # DuckDB's TIMESTAMP is in UTC without saying so.
            zoneless = [
                field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
                for field in rows.schema
            ]
            self.database.register("more", rows.cast(pa.schema(zoneless)))
            self.database.execute(f'INSERT INTO "{name}" BY NAME SELECT * FROM more')
            self.database.unregister("more")
        self.database.commit()

    def select(self, text: str) -> pa.Table:
        return self.database.sql(text).to_arrow_table()

    def batches(self, text: str, rows: int = _ROWS_AT_ONCE) -> Iterator[pa.RecordBatch]:
        """The answer to a SELECT, about `rows` rows at a time."""
        yield from self.database.sql(text).to_arrow_reader(rows)


@contextmanager
def opened(table: Table, *, memory: str = MEMORY, threads: int | None = None) -> Iterator[Workspace]:
    """A workspace for rows of `table`; `threads` defaults to the number of cores."""
    with scratch_folder("cachecast-workspace-") as folder:
        settings: _Settings = {
            "memory_limit": memory,
            "temp_directory": str(folder),
            "preserve_insertion_order": False,
        }
        if threads is not None:
            settings["threads"] = threads
        with _connected(settings) as database:
            yield Workspace(database, table)


def _prepared(query: Query, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    whole = batches if query.join is None else query.join(batches)
    return iter(whole) if query.prepare is None else map(query.prepare, whole)


class Earlier(Protocol):
    """The rows of a source in a dated table, on the days (`2026-03-01`) from … to, with their `day`."""

    def __call__(self, since: str, until: str, table: Table = ACCESSES) -> Sequence[pa.Table]: ...


class Decode(Protocol):
    """Decodes a source whose files must be read one after the other; returns how many records are missing.

    It adds the rows of `places` to a workspace; `earlier`: for records in two parts. Raises InputError.
    """

    def __call__(
        self, space: Workspace, places: Sequence[InputFile], *, site: Site, earlier: Earlier
    ) -> int: ...


def batches_of(rows: Iterable[Mapping[str, object]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`rows` in their order, as batches of `schema`; a field that a row does not have is null.

    Only a batch of them is in memory as Python's objects.
    """
    return (pa.RecordBatch.from_pylist(page, schema=schema) for page in pages(rows, _ROWS_AS_OBJECTS))


class _Shared(Iterator[pa.RecordBatch]):
    """Batches for several threads; `failure`: what making one raised, for DuckDB has its own words for it."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self._lock = batches, threading.Lock()
        self.failure: Exception | None = None

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Raise in the block what making a batch raised."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError):
            if self.failure is not None:
                raise self.failure from None
            raise

    def end(self) -> None:
        with self._lock:
            self._batches = iter(())

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            try:
                return next(self._batches)
            except StopIteration:
                raise
            except Exception as error:
                self.failure = error
                raise


@contextmanager
def _connected(settings: _Settings) -> Iterator[duckdb.DuckDBPyConnection]:
    closed: _Settings = {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with duckdb.connect(config=closed | settings) as database:
        database.execute("SET GLOBAL TimeZone = 'UTC'")
        # Without a script (python -c, a notebook) it would draw on standard output, into what --json prints.
        database.execute("SET enable_progress_bar = false")
        yield database
