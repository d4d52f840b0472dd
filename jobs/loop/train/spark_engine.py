"""Features and labels with Spark, for more than fits into memory: parts of the data, each as in one process.

Spark's workers read the tables' files, send each other the rows of each part, and write the files of the new
partitions, which the driver commits; see `jobs.loop.train.spark_parts`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from features.schema import DORMANT, FILES, PREDICTIONS, STATES, Table
from jobs.ground.spark.exchange import PartFile, Staging, Written, part_files
from jobs.ground.store.commits import Key
from jobs.ground.store.tables import Partition, Snapshot, StagedFile, Tables
from jobs.loop.train.engines import Counting, DayInState, DaysRead, FeatureWork, LabelWork
from jobs.loop.train.spark_parts import CATALOGUE, READS, STATE, FeatureParts, LabelParts, read_parts
from models.serving.bundle import RegionModels

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

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
        reads = self._reads(accesses, days, counting)
        for _, (key, of_file) in self._run(reads, list, [reads.getNumPartitions() - 1]):
            in_state[key] = [some.with_file(more) for some, more in zip(in_state[key], of_file, strict=True)]
        return DaysRead(in_state, [reads])

    def write_features(self, tables: Tables, work: FeatureWork, *, base: Snapshot) -> Snapshot:
        bases = {table: tables.head(table) for table in work.state_windows}
        catalogue = tables.head(FILES)
        n_parts = self._n_parts(_n_rows(work.days))
        if work.source is None:
            counting = Counting([], work.spec.cycle_s, work.demand_sources)
            reads = self._reads(work.accesses, work.days, counting)
        else:
            reads = work.source.reads.pop()
        files = list(part_files(CATALOGUE, catalogue, catalogue.partitions))
        if work.source is not None and work.source.since is not None:
            files += part_files(STATE, tables.head(STATES), work.source.awake)
            files += part_files(STATE, tables.head(DORMANT), work.source.dormant)
        parts = FeatureParts.of(work, tables, n_parts)
        pieces = reads.union(self._read(files, parts.by_file, 2 * n_parts + 1))
        assert pieces.getNumPartitions() == 2 * n_parts + 1, "parts are joined with those of equal number"
        disputed = self._run(pieces, parts.disputed_in, range(n_parts, 2 * n_parts))
        if disputed:
            parts = dataclasses.replace(parts, disputed=np.sort(np.concatenate(disputed)))
            moved = pieces.mapPartitions(parts.by_did).partitionBy(n_parts, int)
            pieces = pieces.union(moved.mapPartitions(parts.by_dataset).partitionBy(2 * n_parts + 1, int))
        written = self._run(pieces, parts.written, range(n_parts))
        done = tables.commit(
            work.spec.features_table, _files(written, work.spec.features_table), cover=work.keys, base=base
        )
        for table, before in bases.items():
            staged = _files(written, table)
            tables.commit(table, staged, cover=work.keys[-1:], base=before, drop=work.older(table))
        return done

    def features(self, tables: Tables, work: FeatureWork) -> Iterator[pa.Table]:
        done = self.write_features(tables, work, base=tables.head(work.spec.features_table))
        for key in work.keys:
            yield done.rows_of([key])

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
        written = self._read(read, parts.by_file, n_parts).mapPartitions(parts.written).collect()
        return tables.commit(table, _files(written, table), cover=work.partitions, base=base)

    def _n_parts(self, n_reads: int) -> int:
        """Parts that fit into memory, and enough of them for the cluster; the same in each run."""
        most = int(str(self._spark.conf.get("spark.sql.shuffle.partitions")))
        return max(1 + n_reads // ROWS_PER_PART, min(most, 1 + n_reads // ROWS_WORTH_A_PART))

    def _reads(self, accesses: Snapshot, days: Mapping[Key, Partition], counting: Counting) -> RDD[Any]:
        n_parts = self._n_parts(_n_rows(days))
        files = list(part_files(READS, accesses, days))
        by_file = partial(read_parts, counting=counting, n_parts=n_parts)
        return self._read(files, by_file, 2 * n_parts + 1)

    def _read(
        self, files: Sequence[PartFile], by_file: Callable[[PartFile], Iterator[Any]], n_parts: int
    ) -> RDD[Any]:
        context = self._spark.sparkContext
        n_tasks = max(1, min(len(files), TASKS_PER_CORE * context.defaultParallelism))
        return context.parallelize(files, n_tasks).flatMap(by_file).partitionBy(n_parts, int)

    def _run(self, pieces: RDD[Any], work: Callable[[Iterable[Any]], Any], parts: Iterable[int]) -> list[Any]:
        return self._spark.sparkContext.runJob(pieces, work, list(parts))


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
    """Write the predictions of `partitions` of `features`, a file for each of theirs; for `commit`."""
    files = list(part_files(("features",), features, partitions))
    score = partial(_scored, into=Staging.of(tables, PREDICTIONS), models=models)
    return _files(
        spark.sparkContext.parallelize(files, max(1, len(files))).flatMap(score).collect(), PREDICTIONS
    )


def _scored(source: PartFile, *, into: Staging, models: RegionModels) -> Iterator[Written]:
    """Write the predictions of a file of features."""
    return into.written([(source.key, models.table(source.rows()))])
