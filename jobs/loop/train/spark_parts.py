"""The work of Spark's workers for features and labels: the rows of parts, exchanged and worked on.

All that is known of a dataset is in one part, for features; of a file, for labels. The dataset of a file is
what its rows state, in most cases; of one whose rows state several, in different parts, it takes all rows to
know it. So each row goes where its own dataset goes, and with it a claim, a number, of its file to that part.
Only the rows of files that several parts claim are exchanged again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features import labels
from features.common.arrays import BoolArray, IntArray
from features.common.hashes import Words
from features.common.times import parse_as_of
from features.schema import ACCESSES, FILES, STATES, Table, arrow_schema
from features.stream import events, facts
from features.stream.facts import ALONE, Stored
from features.stream.names import part_of, text_hashes, whole
from features.stream.region import Region, dataset_parts
from jobs.ground.spark.exchange import Kind, PartFile, Piece, Staging, Written, bare, received, sent
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.train.engines import Counting, FeatureWork, LabelWork
from jobs.loop.train.states import counted_at, demanded_day, remembered, superseded

READS, CATALOGUE, STATE = ("reads",), ("files",), ("state",)
"""Kinds of rows."""
_CLAIMS, _SETTLED = ("claims",), "settled"
"""Claims; the second word of the kind of rows whose dataset is known from all rows of their files."""
_PART_BITS = np.uint64(20)
"""Lower bits of a claim, its part; the others are of the hash of its file."""


def read_parts(source: PartFile, *, counting: Counting, n_parts: int) -> Iterator[tuple[int, Any]]:
    """The reads in a file in `n_parts`, their claims in as many others; the last part is what is counted."""
    rows = demanded_day(source.snapshot, source.chosen, events.COLUMNS, counting.demand_sources)
    if counting.times:
        yield 2 * n_parts, (source.key, counted_at(rows, source.part.digest, counting))
    if counting.since_s is not None:
        rows = rows.filter(pa.array(events.usable(rows, cycle_s=counting.cycle_s) > counting.since_s))
    yield from _by_stated_dataset(READS, rows, n_parts)


@dataclasses.dataclass(frozen=True)
class FeatureParts:
    """Features, and the state if it is kept, in `n_parts` parts that divide no dataset.

    `states`: for each table that takes the state; `superseded`: see `jobs.loop.train.states`; `disputed`:
    hashes of files, sorted, that several parts claim.
    """

    work: FeatureWork
    n_parts: int
    features: Staging
    states: Mapping[Table, Staging]
    superseded: Mapping[str, pa.Array]
    disputed: Words

    @classmethod
    def of(cls, work: FeatureWork, tables: Tables, n_parts: int) -> FeatureParts:
        """Those of `work`, with new folders."""
        source = None
        if work.source is not None:
            source = dataclasses.replace(
                work.source, awake={}, dormant={}, days={}, in_state={}, older={}, reads=[]
            )
        alone = dataclasses.replace(work, accesses=bare(work.accesses), days={}, source=source)
        features = Staging.of(tables, work.spec.features_table)
        states = {table: Staging.of(tables, table) for table in work.state_windows}
        return cls(alone, n_parts, features, states, superseded(tables, work), np.empty(0, np.uint64))

    def by_file(self, source: PartFile) -> Iterator[Piece]:
        """The rows of one file of the catalogue or a state, and their claims, by part."""
        if source.kind == CATALOGUE:
            rows = source.rows(facts.CATALOGUE, facts.CATALOGUE)
        else:
            rows = source.rows(STATES.column_names, facts.REPEATED)
            rows = remembered(rows, self.work, self.superseded[source.key[1]])
        return _by_stated_dataset(source.kind, rows, self.n_parts)

    def disputed_in(self, pieces: Iterable[Piece]) -> Iterator[Words]:
        """Hashes of the files that several parts claim, by a part of the claims."""
        claims = [np.frombuffer(content, np.uint64) for _, (_, content) in pieces]
        claim = _distinct(np.concatenate([np.empty(0, np.uint64), *claims]))
        file = claim >> _PART_BITS
        if (again := _distinct(file[1:][file[1:] == file[:-1]])).size:
            yield again

    def by_did(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The disputed rows of a part, by part of their file."""
        for kind, rows in received(
            (piece for piece in pieces if piece[1][0] in _NAMES), self._disputed
        ).items():
            yield from sent(kind, rows, part_of(rows[_NAMES[kind]], self.n_parts), self.n_parts)

    def by_dataset(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The rows of a part, by part of the dataset of their file."""
        reads, files, stored = _known(received(pieces))
        parts = dataset_parts(reads, files, stored, self.n_parts, cycle_s=self.work.spec.cycle_s)
        yield from sent((*READS, _SETTLED), reads, parts.reads, self.n_parts)
        yield from sent((*CATALOGUE, _SETTLED), files, parts.files, self.n_parts)
        yield from sent((*STATE, _SETTLED), stored.rows, parts.states, self.n_parts)

    def written(self, pieces: Iterable[Piece]) -> Iterator[Written]:
        """Write the features of a part, and its state."""
        work = self.work
        region = Region(*_known(received(pieces, self._undisputed)), work.spec)
        rows = ((MomentKey.at(at, work.region), region.features(at, before)) for at, before in work.moments)
        yield from self.features.written(rows)
        for table, window in work.state_windows.items():
            state = region.stored(work.as_ofs[-1], window)
            yield from self.states[table].written([(work.keys[-1], state.rows)])

    def _disputed(self, kind: Kind, rows: pa.Table) -> tuple[Kind, pa.Table]:
        return kind, rows.filter(pa.array(self._is_disputed(kind, rows)))

    def _undisputed(self, kind: Kind, rows: pa.Table) -> tuple[Kind, pa.Table]:
        if kind in _NAMES and self.disputed.size and (is_disputed := self._is_disputed(kind, rows)).any():
            rows = rows.filter(pa.array(~is_disputed))
        return kind[:1], rows

    def _is_disputed(self, kind: Kind, rows: pa.Table) -> BoolArray:
        files = text_hashes(rows[_NAMES[kind]]) >> _PART_BITS
        places = np.searchsorted(self.disputed, files)
        is_disputed: BoolArray = np.append(self.disputed, self.disputed[-1:])[places] == files
        return is_disputed


_NAMES: Mapping[Kind, str] = {READS: "did", CATALOGUE: "did", STATE: "entity"}
"""What names the file, by kind of rows; in a state a dataset, too."""


def _by_stated_dataset(kind: Kind, rows: pa.Table, n_parts: int) -> Iterator[Piece]:
    """The rows by part of the dataset that each states, and the claims, by hash, as other `n_parts`."""
    name = rows[_NAMES[kind]]
    part = _stated_part(rows["dataset"], name, alone="" if kind == STATE else ALONE, n_parts=n_parts)
    yield from sent(kind, rows, part, n_parts)
    claims = _distinct(text_hashes(name) >> _PART_BITS << _PART_BITS | part.astype(np.uint64))
    of_claim = (claims >> _PART_BITS) % np.uint64(n_parts)
    for k in range(n_parts):
        yield n_parts + k, (_CLAIMS, claims[of_claim == k].tobytes())


def _stated_part(dataset: pa.ChunkedArray, name: pa.ChunkedArray, *, alone: str, n_parts: int) -> IntArray:
    """The part of the dataset of each row; of a row without one, of its own name with `alone` at the end."""
    stated = pc.dictionary_encode(whole(dataset))
    codes = stated.indices.fill_null(len(stated.dictionary)).to_numpy()
    part: IntArray = np.append(part_of(stated.dictionary, n_parts), -1)[codes]
    if (rest := np.flatnonzero(part < 0)).size:
        own = whole(name).take(pa.array(rest)).cast(pa.string())
        part[rest] = part_of(pc.binary_join_element_wise(own, "", alone), n_parts)
    return part


def _distinct(words: Words) -> Words:
    """The distinct numbers, sorted; numpy's `unique` makes a table of hashes, which takes much longer."""
    words = np.sort(words)
    distinct: Words = words[np.append(True, words[1:] != words[:-1])[: words.size]]
    return distinct


def _known(rows_by_kind: Mapping[Kind, pa.Table]) -> tuple[pa.Table, pa.Table, Stored]:
    reads = rows_by_kind.get(READS, arrow_schema(ACCESSES).empty_table().select(list(events.COLUMNS)))
    files = rows_by_kind.get(CATALOGUE, arrow_schema(FILES).empty_table().select(list(facts.CATALOGUE)))
    return reads, files, Stored.of_rows(rows_by_kind.get(STATE, arrow_schema(STATES).empty_table()))


@dataclasses.dataclass(frozen=True)
class LabelParts:
    """Labels, in `n_parts` parts that divide no file."""

    work: LabelWork
    n_parts: int
    into: Staging

    @classmethod
    def of(cls, work: LabelWork, tables: Tables, n_parts: int) -> LabelParts:
        """Those of `work`, with a new folder."""
        alone = dataclasses.replace(
            work, accesses=bare(work.accesses), days={}, features=bare(work.features), partitions={}
        )
        return cls(alone, n_parts, Staging.of(tables, work.spec.labels_table))

    def by_file(self, source: PartFile) -> Iterator[Piece]:
        """The rows of one file of a table, by part of their file."""
        if source.kind == READS:
            columns, sources = labels.COLUMNS, self.work.demand_sources
            rows = demanded_day(source.snapshot, source.chosen, columns, sources)
        else:
            rows = source.rows(["did"])
        return sent(source.kind, rows, part_of(rows["did"], self.n_parts), self.n_parts)

    def written(self, pieces: Iterable[Piece]) -> Iterator[Written]:
        """Write the labels of a part."""
        pairs = received(pieces)
        rows = pairs.pop(READS, arrow_schema(ACCESSES).empty_table().select(list(labels.COLUMNS)))
        reads, spec = labels.Reads(rows, until_s=self.work.until_s), self.work.spec
        return self.into.written(
            (key, reads.labels(files["did"].combine_chunks().sort(), parse_as_of(key[1]), spec))
            for key, files in sorted(pairs.items())
        )
