"""Rows sent from worker to worker of Spark: Arrow tables as bytes, which the JVM does not look into."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from features.common.arrays import IntArray
from features.stream.parts import divided
from features.stream.texts import joined
from jobs.store.keys import Key
from jobs.store.tables import Partition, Snapshot, read_partitions

Kind = tuple[str, ...]
"""What rows are, by which a worker tells them apart: a word, or the key of their partition."""
Piece = tuple[int, tuple[Kind, bytes]]
"""The number of a part, and rows of a kind that are in it."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Files of a partition, to be read by a worker; `kind`: what they hold. The snapshot names no others."""

    kind: Kind
    snapshot: Snapshot
    key: Key
    part: Partition

    @property
    def chosen(self) -> dict[Key, Partition]:
        """The partition with these files alone."""
        return {self.key: self.part}

    def rows(self, columns: Iterable[str]) -> pa.Table:
        """The `columns` of its rows."""
        return read_partitions(self.snapshot, self.chosen, list(columns))


def sources(kind: Kind, snapshot: Snapshot, chosen: Mapping[Key, Partition]) -> Iterator[Source]:
    """The files of `chosen` partitions, one by one."""
    alone = bare(snapshot)
    for key, part in sorted(chosen.items()):
        for name in part.files:
            yield Source(kind, alone, key, dataclasses.replace(part, files=(name,)))


def bare(snapshot: Snapshot) -> Snapshot:
    """The snapshot without its list of partitions, which would be sent with every task."""
    return dataclasses.replace(snapshot, partitions={})


def sent(kind: Kind, rows: pa.Table, part: IntArray, n_parts: int) -> Iterator[Piece]:
    """The rows of each part, to be sent to it; -1: to none."""
    for number, some in divided(rows, part, n_parts):
        yield number, (kind, _packed(some))


def received(pieces: Iterable[Piece]) -> dict[Kind, pa.Table]:
    """The rows of a part by kind, in one chunk; a column that is coded has one dictionary."""
    found: dict[Kind, list[pa.Table]] = {}
    for _, (kind, packed) in pieces:
        found.setdefault(kind, []).append(pa.ipc.open_stream(packed).read_all())
    return {kind: joined(pa.concat_tables(some)) for kind, some in found.items()}


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
