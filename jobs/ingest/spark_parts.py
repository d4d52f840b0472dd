"""What Spark's workers do for a pull: parse records, send each other the rows of a part, merge, write.

Rows travel packed, as Arrow bytes, which the JVM does not look into.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from features.schema import ACCESSES, Table
from features.stream.texts import divided, part_of
from jobs.ingest import merging
from jobs.ingest.sources import workspace
from jobs.ingest.sources.sql import Query
from jobs.store.keys import Key
from jobs.store.tables import Partition, Snapshot, StagedFile, Tables, read_partitions

Reader = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
"""Makes raw records of what a worker is given."""
PIECES = "kind string, part int, packed binary"
"""Columns of packed rows: of `TOLD`, or of the part of their key: `NEW` and `OLD`."""
TOLD, NEW, OLD = "told", "parsed", "old"
STORED = "day string, path string, name string"
"""Columns of a table's files."""
WRITTEN = "day string, folder string, name string, n_rows long, digest string, n long, n_late long"
"""Columns of files that a worker has staged, with the changed and the late rows in them."""

_ROWS_AT_ONCE = 20_000
"""Records that a worker parses at once: fewer of them spend their time on planning, more on memory."""
_ROWS_SENT = 200_000
"""Rows that a worker divides into parts at once."""
_MEMORY = "1GB"
_WRITTEN = pa.schema(
    [
        (name, pa.int64() if name.startswith("n_") or name == "n" else pa.string())
        for name in ("day", "folder", "name", "n_rows", "digest", "n", "n_late")
    ]
)


def unpacked(packed: bytes) -> pa.Table:
    """Rows of a piece."""
    return pa.ipc.open_stream(packed).read_all()


def told(parsed: pa.Table, table: Table) -> pa.Table:
    """Counts of parsed rows: input, reason, day (of accesses), n_rows and the least sample."""
    days = pa.nulls(parsed.num_rows, pa.string())
    if table == ACCESSES:
        days = parsed["accessed_at"].cast(pa.timestamp("us")).cast(pa.date32()).cast(pa.string())
    counted = parsed.select(["input", "reason", "sample"]).append_column("day", days)
    found = counted.group_by(["input", "reason", "day"]).aggregate([("sample", "min"), ([], "count_all")])
    return found.rename_columns({"sample_min": "sample", "count_all": "n_rows"})


@dataclasses.dataclass(frozen=True)
class Parse:
    """Parses the records that `read` makes of what a worker is given, and divides them into `n_parts`."""

    query: Query
    n_parts: int
    read: Reader = iter

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self.query.table
        parsed = workspace.parse(self.query, self.read(batches), rows=_ROWS_AT_ONCE)
        for rows in workspace.gathered(parsed, _ROWS_SENT):
            yield _piece(TOLD, 0, told(rows, table))
            accepted = rows.filter(pc.is_null(rows["reason"])).select(table.column_names)
            yield from _sent(NEW, accepted, table, self.n_parts)


@dataclasses.dataclass(frozen=True)
class Read:
    """Reads files (`STORED`) of a snapshot, and divides their rows into `n_parts`."""

    snapshot: Snapshot
    n_parts: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self.snapshot.table
        for row in (row for batch in batches for row in batch.to_pylist()):
            part = Partition(row["path"], 0, "", (row["name"],))
            rows = read_partitions(self.snapshot, {key_of(row["day"]): part})
            yield from _sent(OLD, rows, table, self.n_parts)


@dataclasses.dataclass(frozen=True)
class Merge:
    """Merges the pieces that a worker is given, and writes all partitions in them into `folder`."""

    root: str
    table: Table
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with workspace.opened(self.table, memory=_MEMORY, threads=1) as space:
            space.put(OLD, self.table.partition, [])
            for row in (row for batch in batches for row in batch.to_pylist()):
                space.add(row["kind"], unpacked(row["packed"]))
            merging.merge(space)
            # A task that runs twice writes files of different names.
            prefix, rows = f"part-{uuid.uuid4().hex}", merging.merged_rows(space)
            staged = Tables(self.root).stage(self.table, self.folder, rows, prefix=prefix)
            changed = {key_of(row.get("day")): row for row in merging.changes(space).to_pylist()}
        none = {"n": 0, "n_late": 0}
        files = [
            {
                **dataclasses.asdict(file),
                **none,
                **changed.get(file.key, {}),
                "day": "".join(file.key) or None,
            }
            for file in staged
        ]
        yield pa.RecordBatch.from_pylist(files, _WRITTEN)


def staged_files(written: pa.Table) -> list[StagedFile]:
    """The files in rows of `WRITTEN`."""
    return [
        StagedFile(key_of(row["day"]), row["folder"], row["name"], row["n_rows"], row["digest"])
        for row in written.to_pylist()
    ]


def key_of(day: str | None) -> Key:
    """The key of the partition of a day; of the whole table without one."""
    return () if day is None else (day,)


def _sent(kind: str, rows: pa.Table, table: Table, n_parts: int) -> Iterator[pa.RecordBatch]:
    (key,) = table.key
    if n_parts == 1:
        yield _piece(kind, 0, rows)
        return
    for number, some in divided(rows, part_of(rows[key], n_parts), n_parts):
        yield _piece(kind, number, some)


def _piece(kind: str, part: int, rows: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(rows)
    packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
    return pa.record_batch({"kind": [kind], "part": pa.array([part], pa.int32()), "packed": packed})
