"""The work of Spark's workers for a pull: parse records, exchange the rows of a part, merge, write."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.schema import Table
from features.stream.names import part_of
from jobs.ground.spark.exchange import Kind, PartFile, Piece, Staging, packed, sent, unpacked
from jobs.ground.store.tables import StagedFile
from jobs.loop.ingest import merging
from jobs.loop.ingest.sources import lines, workspace
from jobs.loop.ingest.sources.sql import Query

Reader = Callable[[Iterable[Any]], Iterable[pa.RecordBatch]]  # makes raw records of what a worker gets
COUNTS, NEW, OLD = ("counts",), ("parsed",), ("old",)  # kinds of rows: counts, accepted, of the table
_ROWS_SENT = 50_000  # rows that a worker divides into parts at once: about 20 MB
_MEMORY = "1GB"


class Merged(NamedTuple):
    """A file that a worker has staged; changed and late rows of its partition in this part."""

    file: StagedFile
    n: int
    n_late: int


def local_lines(pieces: Iterable[lines.Piece]) -> Iterator[pa.RecordBatch]:
    """The lines of pieces of this machine's files. What is no plain file any more is an InputError."""
    return lines.batches(pieces, lines.fail)


def frame_rows(schema: pa.Schema, messages: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """The rows of a frame of Spark's, of messages in which it sends them to Python."""
    return (pa.ipc.read_record_batch(pa.py_buffer(message), schema) for message in messages)


def frame_lines(schema: pa.Schema, messages: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """The same for lines that Spark read, as text."""
    return map(lines.text_of, frame_rows(schema, messages))


def counts(parsed: pa.Table, table: Table) -> pa.Table:
    """Counts of parsed rows: input, reason, day, n_rows and the least sample."""
    days = pa.nulls(parsed.num_rows, pa.string())
    if table.dated_by:
        at = pc.coalesce(*(parsed[name] for name in table.dated_by))
        days = at.cast(pa.timestamp("us")).cast(pa.date32()).cast(pa.string())
    verdicts = parsed.select(["input", "reason", "sample"]).append_column("day", days)
    counted = verdicts.group_by(["input", "reason", "day"]).aggregate([("sample", "min"), ([], "count_all")])
    return counted.rename_columns({"sample_min": "sample", "count_all": "n_rows"})


def parsed(given: Iterable[Any], query: Query, n_parts: int, read: Reader) -> Iterator[Piece]:
    """The rows of the records that `read` makes of what a worker is given, divided into `n_parts`.

    The part after the last one is their `counts`.
    """
    for batch in workspace.parse(query, read(given), rows=_ROWS_SENT):
        rows = pa.Table.from_batches([batch])
        yield n_parts, (COUNTS, packed(counts(rows, query.table)))
        is_accepted = pc.is_null(batch["reason"]).to_numpy(zero_copy_only=False)
        yield from _sent(NEW, rows.select(query.table.column_names), query.table, n_parts, is_accepted)


def stored(source: PartFile, n_parts: int) -> Iterator[Piece]:
    return _sent(OLD, source.rows(), source.snapshot.table, n_parts)


def written(pieces: Iterable[Piece], into: Staging) -> Iterator[Merged]:
    table = into.table
    with workspace.opened(table, memory=_MEMORY, threads=1) as space:
        space.put(OLD[0], table.partition, [])
        space.add((kind[0], unpacked(content)) for _, (kind, content) in pieces)
        merging.merge(space)
        files = [staged.file for staged in into.written(merging.merged_rows(space))]
        changes = {
            tuple(row[name] for name in table.partition): (row["n"], row["n_late"])
            for row in merging.changes(space).to_pylist()
        }
    return (Merged(file, *changes.get(file.key, (0, 0))) for file in files)


def _sent(
    kind: Kind, rows: pa.Table, table: Table, n_parts: int, is_sent: npt.ArrayLike = True
) -> Iterator[Piece]:
    """Those of `rows` that are sent, to the parts of their keys."""
    seldom = {"did", "name", *table.key}
    repeats = [
        field.name for field in rows.schema if pa.types.is_string(field.type) and field.name not in seldom
    ]
    for name in repeats:  # every step from here to the merge then copies numbers
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, pc.dictionary_encode(rows[name]))
    part = np.where(is_sent, part_of(rows[table.key[0]], n_parts), -1)
    return sent(kind, rows, part, n_parts)
