"""What Spark's workers send each other and the driver.

Rows travel as bytes of Arrow tables, which the JVM does not look into; written files as a line each.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from features.common.arrays import IntArray
from features.schema import Table
from features.stream.names import divided, joined
from jobs.ground.store.commits import Key
from jobs.ground.store.tables import Partition, Snapshot, StagedFile, Tables, new_folder, read_partitions

Kind = tuple[str, ...]  # by which a worker tells rows apart: a word, or the key of their partition
Piece = tuple[int, tuple[Kind, bytes]]  # the number of a part, and rows of a kind that are in it
_PACKING = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclasses.dataclass(frozen=True)
class PartFile:
    """Files of one partition for a worker to read; `kind`: what they hold. `snapshot` lists no partition."""

    kind: Kind
    snapshot: Snapshot
    key: Key
    part: Partition

    @property
    def chosen(self) -> dict[Key, Partition]:
        return {self.key: self.part}

    def rows(self, columns: Sequence[str] | None = None, coded: Collection[str] = ()) -> pa.Table:
        """The `columns` of its rows, texts `coded` as codes; None: all, and those of the partition."""
        return read_partitions(self.snapshot, self.chosen, columns, coded=coded)


def part_files(kind: Kind, snapshot: Snapshot, partitions: Mapping[Key, Partition]) -> Iterator[PartFile]:
    """The files of `partitions` partitions, one by one."""
    alone = bare(snapshot)
    for key, part in sorted(partitions.items()):
        for name in part.files:
            yield PartFile(kind, alone, key, dataclasses.replace(part, files=(name,)))


def bare(snapshot: Snapshot) -> Snapshot:
    """The snapshot without its list of partitions, which would be sent with every task."""
    return dataclasses.replace(snapshot, partitions={})


def sent(kind: Kind, rows: pa.Table, part: IntArray, n_parts: int) -> Iterator[Piece]:
    """The rows of each part, to be sent to it; -1: to none."""
    for number, some in divided(rows, part, n_parts):
        yield number, (kind, packed(some))


def received(
    pieces: Iterable[Piece], chosen: Callable[[Kind, pa.Table], tuple[Kind, pa.Table]] = lambda *piece: piece
) -> dict[Kind, pa.Table]:
    """The rows of a part by kind, in one chunk; `chosen`: what of a piece counts, and as which kind."""
    by_kind: dict[Kind, list[pa.Table]] = {}
    for _, (sent_as, content) in pieces:
        kind, rows = chosen(sent_as, unpacked(content))
        by_kind.setdefault(kind, []).append(rows)
    return {kind: joined(pa.concat_tables(some)) for kind, some in by_kind.items()}


def packed(rows: pa.Table) -> bytes:
    """The bytes of `rows`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_PACKING) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def unpacked(content: bytes) -> pa.Table:
    """The rows of bytes that `packed` made."""
    return pa.ipc.open_stream(content).read_all()


class Written(NamedTuple):
    table: str
    file: StagedFile


@dataclasses.dataclass(frozen=True)
class Staging:
    """A folder of a table for new files of its partitions."""

    root: str
    table: Table
    folder: str

    @classmethod
    def of(cls, tables: Tables, table: Table) -> Staging:
        return cls(tables.root, table, new_folder())

    def written(self, pieces: Iterable[tuple[Key, pa.Table]]) -> Iterator[Written]:
        """Write rows. A task that runs twice, or another, writes files of different names."""
        prefix = f"part-{uuid.uuid4().hex}"
        staged = Tables(self.root).stage(self.table, self.folder, pieces, prefix=prefix)
        return (Written(self.table.name, file) for file in staged)
