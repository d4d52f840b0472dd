"""The work of Spark's workers for features and labels: read files, exchange their rows, write new files.

Rows travel between workers as bytes of Arrow tables, which the JVM does not look into.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from features import labels
from features.common.arrays import IntArray
from features.common.times import parse_as_of
from features.schema import ACCESSES, STATES, Table, arrow_schema
from features.schema import FILES as CATALOGUE
from features.stream import events, facts
from features.stream.region import Region, dataset_parts
from features.stream.stored import Stored
from features.stream.texts import coded, divided, joined, part_of
from jobs.store.keys import Key, MomentKey
from jobs.store.tables import Partition, Snapshot, StagedFile, Tables, new_folder, read_partitions
from jobs.train.reads import demanded_day, not_counted, remembered, superseded
from jobs.train.work import FeatureWork, LabelWork

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


READS, FILES, STATE, HITS = ("reads",), ("files",), ("state",), ("hits",)
"""Kinds of rows."""

_NO_HITS = pa.schema([("did", pa.string()), ("at", pa.int64())]).empty_table()


class Written(NamedTuple):
    """A file of a table that a worker has written."""

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
        """A new one."""
        return cls(tables.root, table, new_folder())

    def written(self, part: int, pieces: Iterable[tuple[Key, pa.Table]]) -> Iterator[Written]:
        """Write the rows that a part has. A task that runs twice writes files of different names."""
        prefix = f"part-{part}-{uuid.uuid4().hex}"
        staged = Tables(self.root).stage(self.table, self.folder, pieces, prefix=prefix)
        return (Written(self.table.name, file) for file in staged)


@dataclasses.dataclass(frozen=True)
class FeatureParts:
    """Features, and the state if it is kept, in `n_parts` parts that divide no dataset.

    `states`: for each table that takes the state; `superseded`: see `jobs.train.reads`.
    """

    work: FeatureWork
    n_parts: int
    features: Staging
    states: Mapping[Table, Staging]
    superseded: Mapping[str, pa.Array]

    @classmethod
    def of(cls, work: FeatureWork, tables: Tables, n_parts: int) -> FeatureParts:
        """Those of `work`, with new folders."""
        source = None
        if work.source is not None:
            source = dataclasses.replace(work.source, dormant={}, days={}, in_state={}, older={})
        alone = dataclasses.replace(work, accesses=bare(work.accesses), days={}, source=source)
        features = Staging.of(tables, work.spec.features_table)
        states = {kept: Staging.of(tables, kept) for kept in work.kept}
        return cls(alone, n_parts, features, states, superseded(tables, work))

    def by_file(self, source: Source) -> Iterator[Piece]:
        """The rows of one file of a table, by part of their file."""
        if source.kind == READS:
            columns, sources = events.COLUMNS, self.work.demand_sources
            rows = demanded_day(source.snapshot, source.chosen, columns, sources)
            rows = not_counted(rows, self.work)
        elif source.kind == FILES:
            rows = coded(source.rows(facts.CATALOGUE))
        else:
            rows = remembered(source.rows(STATES.column_names), self.work, self.superseded[source.key[1]])
        name = "entity" if source.kind == STATE else "did"
        return sent(source.kind, rows, part_of(rows[name], self.n_parts), self.n_parts)

    def by_dataset(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The rows of a part, by part of the dataset of their file."""
        reads, files, stored = self._known(pieces)
        found = dataset_parts(reads, files, stored, self.n_parts, cycle_s=self.work.spec.cycle_s)
        yield from sent(READS, reads, found.reads, self.n_parts)
        yield from sent(FILES, files, found.files, self.n_parts)
        yield from sent(STATE, stored.rows, found.states, self.n_parts)

    def written(self, part: int, pieces: Iterable[Piece]) -> Iterator[Written]:
        """Write the features of a part, and its state."""
        work = self.work
        region = Region(*self._known(pieces), work.spec)
        rows = ((MomentKey.at(at, work.region), region.features(at)) for at in work.as_ofs)
        yield from self.features.written(part, rows)
        for kept, (since_s, before_s) in work.kept.items():
            state = region.stored(work.as_ofs[-1], counted_since_s=since_s, counted_before_s=before_s)
            yield from self.states[kept].written(part, [(work.keys[-1], state.rows)])

    def _known(self, pieces: Iterable[Piece]) -> tuple[pa.Table, pa.Table, Stored]:
        found = received(pieces)
        reads = found.get(READS, arrow_schema(ACCESSES).empty_table().select(list(events.COLUMNS)))
        files = found.get(FILES, arrow_schema(CATALOGUE).empty_table().select(list(facts.CATALOGUE)))
        return reads, files, Stored.of_rows(found.get(STATE, arrow_schema(STATES).empty_table()))


@dataclasses.dataclass(frozen=True)
class LabelParts:
    """Labels, in `n_parts` parts that divide no file."""

    work: LabelWork
    has_hits: bool
    n_parts: int
    into: Staging

    @classmethod
    def of(cls, work: LabelWork, tables: Tables, n_parts: int) -> LabelParts:
        """Those of `work`, with a new folder."""
        alone = dataclasses.replace(
            work, accesses=bare(work.accesses), days={}, features=bare(work.features), wanted={}, hits=None
        )
        return cls(alone, work.hits is not None, n_parts, Staging.of(tables, work.spec.labels_table))

    def by_file(self, source: Source) -> Iterator[Piece]:
        """The rows of one file of a table, by part of their file."""
        if source.kind == READS:
            columns, sources = labels.COLUMNS, self.work.demand_sources
            rows = demanded_day(source.snapshot, source.chosen, columns, sources)
        else:
            rows = source.rows(["did"])
        return sent(source.kind, rows, part_of(rows["did"], self.n_parts), self.n_parts)

    def written(self, part: int, pieces: Iterable[Piece]) -> Iterator[Written]:
        """Write the labels of a part."""
        found = received(pieces)
        rows = found.pop(READS, arrow_schema(ACCESSES).empty_table().select(list(labels.COLUMNS)))
        hits = found.pop(HITS, _NO_HITS) if self.has_hits else None
        reads = labels.Reads(rows, until_s=self.work.until_s, hits=labels.hits_of(hits))
        return self.into.written(part, self._labels(reads, found))

    def _labels(self, reads: labels.Reads, pairs: Mapping[Key, pa.Table]) -> Iterator[tuple[Key, pa.Table]]:
        spec = self.work.spec
        for key, rows in sorted(pairs.items()):
            found = reads.labels(rows["did"].combine_chunks().sort(), parse_as_of(key[1]), spec)
            yield key, found
