"""The engine for inputs and tables of any size, on any file system: Spark.

Spark distributes lines, files and parts; its workers run the SQL of the sources and of the merge in DuckDB,
and write the files of the new partitions, which the driver commits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.common.errors import InputError, NotPlainError
from features.common.input_files import InputFile
from features.schema import ACCESSES
from jobs.ingest import sources, spark_parts
from jobs.ingest.local_engine import marks
from jobs.ingest.pull_input import Changes, Mark, PullSummary, Request, summarise
from jobs.ingest.sources import base, lines, workspace
from jobs.ingest.sources.local import check_plain, files_in, is_local, places_at, unpacked_bytes
from jobs.ingest.sources.sql import Query
from jobs.store.keys import Key
from jobs.store.tables import Partition, Snapshot, Tables, new_folder

_KEEP = StorageLevel.DISK_ONLY  # in memory, millions of rows in a few partitions exceed the heap
_BYTES_PER_PART = 256 * 2**20
"""Of raw records, about, that a worker merges at a time."""
_ROWS_PER_PART = 1_000_000
"""Of a partition of the table, which may have to be merged too."""


class _Records(NamedTuple):
    """Raw records, or what `read` makes them of in a worker; inputs that were `refused`."""

    frame: DataFrame
    query: Query
    read: spark_parts.Reader = iter
    refused: Sequence[tuple[str, NotPlainError]] = ()


class SparkEngine:
    """Spark; see `jobs.ingest.pull_input.Engine`. Sources that are decoded are the local engine's."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def inputs(self, path: str, *, whole: bool) -> list[Mark]:
        if is_local(path):
            return marks(path, whole=whole)
        try:
            files = self._spark.read.format("binaryFile").option("recursiveFileLookup", whole).load(path)
        except AnalysisException as error:
            raise InputError(
                f"cannot read {path}: {error.getCondition() or 'unusable'}; is the path right?"
            ) from None
        found = files.select("path", "length", "modificationTime").toArrow().sort_by("path").to_pylist()
        return [Mark(row["path"], row["length"], row["modificationTime"]) for row in found]

    def merge(self, tables: Tables, request: Request, paths: Sequence[str]) -> PullSummary:
        with base.readable(request.path), tables.exclusive("pull"):
            records = self._read(request, paths)
            head = tables.head(records.query.table)
            n_parts = self._n_parts(request, paths, head)
            parse = spark_parts.Parse(records.query, n_parts, records.read)
            parsed = records.frame.mapInArrow(parse, spark_parts.PIECES).persist(_KEEP)
            try:
                counts = _told(parsed, records)
                changes = self._merged(tables, head, parsed, counts, n_parts)
            finally:
                parsed.unpersist()
            return _concluded(tables, request, counts, changes)

    def _n_parts(self, request: Request, paths: Sequence[str], head: Snapshot) -> int:
        whole = sources.reads_whole(request.source)
        found = [mark for path in paths for mark in self.inputs(path, whole=whole)]
        n_bytes = sum(unpacked_bytes(one.input, one.size_bytes) for one in found)
        n_rows = max((part.n_rows for part in head.partitions.values()), default=0)
        most = int(str(self._spark.conf.get("spark.sql.shuffle.partitions")))
        return min(most, 1 + max(n_bytes // _BYTES_PER_PART, n_rows // _ROWS_PER_PART))

    def _read(self, request: Request, paths: Sequence[str]) -> _Records:
        if sources.needs_spark(request.source):
            (path,) = paths
            if is_local(path):
                check_plain(path)
            return _Records(*sources.module(request.source).read(self._spark, path, day=request.site.day))
        if is_local(request.path):
            return self._local_lines(request, paths)
        found = functools.reduce(
            DataFrame.unionByName, (base.read_lines(self._spark, path) for path in paths)
        )
        return _Records(found, _query(request, functools.partial(_first_line, found)))

    def _local_lines(self, request: Request, paths: Sequence[str]) -> _Records:
        files = files_in([place for path in paths for place in places_at(path, request.path)])
        refused: list[tuple[str, NotPlainError]] = []

        def refuse(file: InputFile, why: NotPlainError) -> None:
            refused.append((lines.uri_of(file), why))

        found = base.local_pieces(self._spark, files, refuse)
        query = _query(request, functools.partial(lines.first_line, files))
        return _Records(found, query, base.lines_of, refused)

    def _merged(
        self, tables: Tables, head: Snapshot, parsed: DataFrame, counts: pa.Table, n_parts: int
    ) -> Changes:
        """Merge the pieces of `parsed`, and commit the partitions that changed."""
        table = head.table
        days = set(counts["day"].to_pylist())
        touched = {key: part for key, part in head.partitions.items() if table != ACCESSES or key[0] in days}
        pieces = parsed.filter(F.col("kind") != spark_parts.TOLD).unionByName(
            self._stored(head, touched).mapInArrow(
                spark_parts.Read(dataclasses.replace(head, partitions={}), n_parts), spark_parts.PIECES
            )
        )
        folder = new_folder()
        merge = spark_parts.Merge(tables.root, table, folder)
        written = pieces.repartition(n_parts, "part").mapInArrow(merge, spark_parts.WRITTEN).toArrow()
        names = ["day", "n", "n_late"] if table.partition else ["n", "n_late"]
        changes = Changes.of(written.filter(pc.greater(written["n"], 0)).select(names))
        if not changes.n_new and head.number:
            tables.discard(table, folder)
            return changes
        files = spark_parts.staged_files(written)
        same = {file.folder for file in files if table.partition and file.key[0] not in changes.days}
        for folder_of_day in same:
            tables.discard(table, folder_of_day)
        tables.commit(table, [file for file in files if file.folder not in same], base=head)
        return changes

    def _stored(self, head: Snapshot, touched: dict[Key, Partition]) -> DataFrame:
        """The files of the partitions `touched`, of which a task reads some."""
        rows = [
            (key[0] if key else None, part.path, name)
            for key, part in sorted(touched.items())
            for name in part.files
        ]
        n_tasks = max(1, min(len(rows), 4 * self._spark.sparkContext.defaultParallelism))
        return self._spark.createDataFrame(rows, spark_parts.STORED).repartition(n_tasks)


def _query(request: Request, first_line: Callable[[], str]) -> Query:
    return sources.query_of_lines(request.source, request.site, first_line, request.path)


def _first_line(found: DataFrame) -> str:
    """The first line that is not blank; empty if there is none."""
    first = found.filter(F.trim(F.col("value").cast("string")) != "").select("value").first()
    return "" if first is None else bytes(first.value).decode(errors="replace")


def _told(parsed: DataFrame, records: _Records) -> pa.Table:
    """All that the workers told of the rows (`spark_parts.told`), and what was refused before."""
    table = records.query.table
    found = parsed.filter(F.col("kind") == spark_parts.TOLD).select("packed").toArrow()
    refused = spark_parts.told(workspace.refusals(table, records.refused), table)
    return pa.concat_tables([refused, *map(spark_parts.unpacked, found["packed"].to_pylist())])


def _concluded(tables: Tables, request: Request, counts: pa.Table, changes: Changes) -> PullSummary:
    inputs = counts.group_by("input").aggregate([("n_rows", "sum")])
    refused = counts.filter(pc.is_valid(counts["reason"]))
    rejects = refused.group_by(["input", "reason"]).aggregate([("n_rows", "sum"), ("sample", "min")])
    rejects = rejects.rename_columns({"n_rows_sum": "n_rows", "sample_min": "sample"})
    return summarise(
        tables,
        request,
        inputs=inputs.rename_columns({"n_rows_sum": "n_rows"}),
        rejects=rejects.append_column("source", pa.repeat(pa.scalar(request.source), rejects.num_rows)),
        changes=changes,
        n_lost=0,
    )
