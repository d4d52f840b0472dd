"""Features and labels with Spark, for more than fits into memory: parts of the data, each as in one process.

All that is known of a dataset is in one part, for features; of a file, for labels. Spark's workers read the
tables' files, send each other the rows of each part, and write the files of the new partitions, which the
driver commits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from features import labels
from features.common.times import parse_as_of
from features.schema import ACCESSES, DORMANT, FILES, PREDICTIONS, STATES, Table, arrow_schema
from features.stream import events, facts
from features.stream.facts import Stored
from features.stream.names import part_of
from features.stream.region import Region, dataset_parts
from jobs.ground.spark.exchange import PartFile, Piece, Staging, Written, bare, part_files, received, sent
from jobs.ground.store.commits import Key, MomentKey
from jobs.ground.store.tables import Partition, Snapshot, StagedFile, Tables, read_partitions
from jobs.loop.train.engines import Counting, DayInState, DaysRead, FeatureWork, LabelWork
from jobs.loop.train.states import counted_at, demanded_day, not_counted, remembered, superseded
from models.serving.bundle import RegionModels

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

_Made = TypeVar("_Made")

ROWS_PER_PART = 1_000_000
"""Reads, about, that a worker has in memory at a time."""
ROWS_WORTH_A_PART = 100_000
"""Reads for which another worker is worth its start, and another file of each partition."""
TASKS_PER_CORE = 4
"""Tasks, at most, that read files, for each core."""
PAIRS_PER_PART = 10_000_000
"""Rows to be labelled, about, that a worker has in memory at a time."""


class SparkEngine:
    """Spark; see `jobs.loop.train.engines.Engine`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, accesses: Snapshot, days: Mapping[Key, Partition], counting: Counting) -> DaysRead:
        in_state = {key: [DayInState(part.digest)] * len(counting.times) for key, part in days.items()}

        def counted(source: PartFile) -> Iterator[tuple[Key, Sequence[DayInState]]]:
            rows = demanded_day(source.snapshot, source.chosen, events.COLUMNS, counting.demand_sources)
            yield source.key, counted_at(rows, source.part.digest, counting)

        for key, of_file in self._read(list(part_files(READS, accesses, days)), counted).collect():
            in_state[key] = [some.with_file(more) for some, more in zip(in_state[key], of_file, strict=True)]
        return DaysRead(in_state, [])

    def write_features(self, tables: Tables, work: FeatureWork, *, base: Snapshot) -> Snapshot:
        bases = {table: tables.head(table) for table in work.state_windows}
        catalogue = tables.head(FILES)
        n_parts = self._n_parts(_n_rows(work.days))
        parts = FeatureParts.of(work, tables, n_parts)
        read = [
            *part_files(READS, work.accesses, work.days),
            *part_files(CATALOGUE, catalogue, catalogue.partitions),
        ]
        if work.source is not None and work.source.since is not None:
            read += part_files(STATE, tables.head(STATES), work.source.awake)
            read += part_files(STATE, tables.head(DORMANT), work.source.dormant)
        pieces = self._read(read, parts.by_file).partitionBy(n_parts, int).mapPartitions(parts.by_dataset)
        written = pieces.partitionBy(n_parts, int).mapPartitions(parts.written).collect()
        done = tables.commit(
            work.spec.features_table, _files(written, work.spec.features_table), cover=work.keys, base=base
        )
        for table, before in bases.items():
            files = _files(written, table)
            tables.commit(table, files, cover=work.keys[-1:], base=before, drop=work.older(table))
        return done

    def features(self, tables: Tables, work: FeatureWork) -> Iterator[pa.Table]:
        done = self.write_features(tables, work, base=tables.head(work.spec.features_table))
        for key in work.keys:
            yield read_partitions(done, {key: done.partitions[key]})

    def write_labels(self, tables: Tables, work: LabelWork, *, base: Snapshot) -> Snapshot:
        n_pairs = _n_rows(work.partitions)
        n_parts = max(self._n_parts(_n_rows(work.days)), 1 + n_pairs // PAIRS_PER_PART)
        table = work.spec.labels_table
        parts = LabelParts.of(work, tables, n_parts)
        read = [
            *part_files(READS, work.accesses, work.days),
            *(
                file
                for key in work.partitions
                for file in part_files(key, work.features, {key: work.partitions[key]})
            ),
        ]
        pieces = self._read(read, parts.by_file).partitionBy(n_parts, int)
        written = pieces.mapPartitions(parts.written).collect()
        return tables.commit(table, _files(written, table), cover=work.partitions, base=base)

    def _n_parts(self, n_reads: int) -> int:
        """Parts that fit into memory, and enough of them for the cluster; the same in each run."""
        most = int(str(self._spark.conf.get("spark.sql.shuffle.partitions")))
        return max(1 + n_reads // ROWS_PER_PART, min(most, 1 + n_reads // ROWS_WORTH_A_PART))

    def _read(self, files: Sequence[PartFile], by_file: Callable[[PartFile], Iterator[_Made]]) -> RDD[_Made]:
        context = self._spark.sparkContext
        n_tasks = max(1, min(len(files), TASKS_PER_CORE * context.defaultParallelism))
        return context.parallelize(files, n_tasks).flatMap(by_file)


def _n_rows(partitions: Mapping[Key, Partition]) -> int:
    return sum(part.n_rows for part in partitions.values())


def _files(written: Iterable[Written], table: Table) -> list[StagedFile]:
    return [file.file for file in written if file.table == table.name]


def staged(
    spark: SparkSession,
    tables: Tables,
    features: Snapshot,
    partitions: Mapping[Key, Partition],
    models: RegionModels,
) -> list[StagedFile]:
    """Write the predictions of `chosen` partitions of `features`, a file for each of theirs; for `commit`."""
    files = list(part_files(("features",), features, partitions))
    score = _Score(Staging.of(tables, PREDICTIONS), models)
    return _files(
        spark.sparkContext.parallelize(files, max(1, len(files))).flatMap(score).collect(), PREDICTIONS
    )


@dataclasses.dataclass(frozen=True)
class _Score:
    """Writes the predictions of a file of features."""

    into: Staging
    models: RegionModels

    def __call__(self, source: PartFile) -> Iterator[Written]:
        return self.into.written([(source.key, self.models.table(source.rows()))])


READS, CATALOGUE, STATE = ("reads",), ("files",), ("state",)
"""Kinds of rows."""


@dataclasses.dataclass(frozen=True)
class FeatureParts:
    """Features, and the state if it is kept, in `n_parts` parts that divide no dataset.

    `states`: for each table that takes the state; `superseded`: see `jobs.loop.train.states`.
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
            source = dataclasses.replace(work.source, awake={}, dormant={}, days={}, in_state={}, older={})
        alone = dataclasses.replace(work, accesses=bare(work.accesses), days={}, source=source)
        features = Staging.of(tables, work.spec.features_table)
        states = {table: Staging.of(tables, table) for table in work.state_windows}
        return cls(alone, n_parts, features, states, superseded(tables, work))

    def by_file(self, source: PartFile) -> Iterator[Piece]:
        """The rows of one file of a table, by part of their file."""
        if source.kind == READS:
            columns, sources = events.COLUMNS, self.work.demand_sources
            rows = demanded_day(source.snapshot, source.chosen, columns, sources)
            rows = not_counted(rows, self.work)
        elif source.kind == CATALOGUE:
            rows = source.rows(facts.CATALOGUE, facts.CATALOGUE)
        else:
            rows = source.rows(STATES.column_names, facts.REPEATED)
            rows = remembered(rows, self.work, self.superseded[source.key[1]])
        name = "entity" if source.kind == STATE else "did"
        return sent(source.kind, rows, part_of(rows[name], self.n_parts), self.n_parts)

    def by_dataset(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The rows of a part, by part of the dataset of their file."""
        reads, files, stored = self._known(pieces)
        parts = dataset_parts(reads, files, stored, self.n_parts, cycle_s=self.work.spec.cycle_s)
        yield from sent(READS, reads, parts.reads, self.n_parts)
        yield from sent(CATALOGUE, files, parts.files, self.n_parts)
        yield from sent(STATE, stored.rows, parts.states, self.n_parts)

    def written(self, pieces: Iterable[Piece]) -> Iterator[Written]:
        """Write the features of a part, and its state."""
        work = self.work
        region = Region(*self._known(pieces), work.spec)
        rows = ((MomentKey.at(at, work.region), region.features(at, before)) for at, before in work.moments)
        yield from self.features.written(rows)
        for table, window in work.state_windows.items():
            state = region.stored(work.as_ofs[-1], window)
            yield from self.states[table].written([(work.keys[-1], state.rows)])

    def _known(self, pieces: Iterable[Piece]) -> tuple[pa.Table, pa.Table, Stored]:
        rows_by_kind = received(pieces)
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
