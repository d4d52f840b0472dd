"""The work of Spark's workers for features and labels: read files, exchange their rows, write new files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from features import labels
from features.common.times import parse_as_of
from features.schema import ACCESSES, STATES, Table, arrow_schema
from features.schema import FILES as CATALOGUE
from features.stream import events, facts
from features.stream.facts import Stored
from features.stream.names import coded, part_of
from features.stream.region import Region, dataset_parts
from jobs.ground.spark.exchange import Piece, Source, Staging, Written, bare, received, sent
from jobs.ground.store.keys import Key, MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.train.reads import demanded_day, not_counted, remembered, superseded
from jobs.loop.train.work import FeatureWork, LabelWork

READS, FILES, STATE, HITS = ("reads",), ("files",), ("state",), ("hits",)
"""Kinds of rows."""

_NO_HITS = pa.schema([("did", pa.string()), ("at", pa.int64())]).empty_table()


@dataclasses.dataclass(frozen=True)
class FeatureParts:
    """Features, and the state if it is kept, in `n_parts` parts that divide no dataset.

    `states`: for each table that takes the state; `superseded`: see `jobs.loop.train.reads`.
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

    def written(self, pieces: Iterable[Piece]) -> Iterator[Written]:
        """Write the features of a part, and its state."""
        work = self.work
        region = Region(*self._known(pieces), work.spec)
        rows = ((MomentKey.at(at, work.region), region.features(at)) for at in work.as_ofs)
        yield from self.features.written(rows)
        for kept, (since_s, before_s) in work.kept.items():
            state = region.stored(work.as_ofs[-1], counted_since_s=since_s, counted_before_s=before_s)
            yield from self.states[kept].written([(work.keys[-1], state.rows)])

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

    def written(self, pieces: Iterable[Piece]) -> Iterator[Written]:
        """Write the labels of a part."""
        found = received(pieces)
        rows = found.pop(READS, arrow_schema(ACCESSES).empty_table().select(list(labels.COLUMNS)))
        hits = found.pop(HITS, _NO_HITS) if self.has_hits else None
        reads = labels.Reads(rows, until_s=self.work.until_s, hits=labels.hits_of(hits))
        return self.into.written(self._labels(reads, found))

    def _labels(self, reads: labels.Reads, pairs: Mapping[Key, pa.Table]) -> Iterator[tuple[Key, pa.Table]]:
        spec = self.work.spec
        for key, rows in sorted(pairs.items()):
            found = reads.labels(rows["did"].combine_chunks().sort(), parse_as_of(key[1]), spec)
            yield key, found
