"""The engine for inputs and tables of any size, on any file system: Spark.

Spark distributes lines, files and parts; its workers run the SQL of the sources and of the merge in DuckDB,
and write the files of the new partitions, which the driver commits.
"""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark import RDD, cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from features.common.errors import InputError, NotPlainError
from jobs.ground.spark.exchange import Piece, Staging, part_files, received
from jobs.ground.store.tables import Snapshot, Tables
from jobs.loop.ingest import known_names, sources
from jobs.loop.ingest.local_engine import marks
from jobs.loop.ingest.pull_input import Changes, Mark, PullSummary, Request, summarise
from jobs.loop.ingest.sources import Source, lines, local, workspace
from jobs.loop.ingest.sources.sql import Query
from jobs.loop.ingest.spark_parts import (
    OLD,
    Reader,
    counts,
    frame_lines,
    frame_rows,
    local_lines,
    parsed,
    stored,
    written,
)

_BROKEN = re.compile("(?:FAILED_READ_FILE.*? file|Could not read file:) ([^ \n]+?)[.]?(?: |\n|$)")
_OURS = re.compile("InputError: (cannot read [^\n]+)")
_GLOBBED = re.compile(r"[\\*?{}\[\]]")  # Hadoop takes them as they are after a backslash
_PIECE_BYTES = 128 * 2**20  # of a file of this machine, about, that a worker reads at a time
_TASKS_PER_CORE = 8
_BYTES_PER_PART = 256 * 2**20  # of raw records, about, that a worker merges at a time
_ROWS_PER_PART = 1_000_000  # of a partition of the table, which may have to be merged too


class _Records(NamedTuple):
    """What workers are given, which `read` makes raw records of; inputs that were `refused`."""

    given: RDD[Any]
    query: Query
    read: Reader
    refused: Sequence[tuple[str, NotPlainError]] = ()


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Raise InputError for a file that is found broken while the block runs, for example a gz cut short."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if (ours := _OURS.search(str(error))) is not None:
            raise InputError(ours[1]) from None
        broken = _BROKEN.search(str(error))
        if broken is None:
            raise
        raise InputError(f"cannot read {broken[1]} of {path}: it is broken, or still being written") from None


class SparkEngine:
    """Spark; see `jobs.loop.ingest.pull_input.Engine`. Sources that are decoded are the local engine's."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._context = spark, spark.sparkContext

    def inputs(self, path: str, *, whole: bool) -> list[Mark]:
        if local.is_local(path):
            return marks(path, whole=whole)
        files = _at(path, self._spark.read.format("binaryFile").option("recursiveFileLookup", whole).load)
        rows = files.select("path", "length", "modificationTime").toArrow().sort_by("path").to_pylist()
        return [Mark(row["path"], row["length"], row["modificationTime"]) for row in rows]

    def merge(self, tables: Tables, request: Request, paths: Sequence[str]) -> PullSummary:
        with _readable(request.path), tables.exclusive():
            records = self._read(request, paths)
            head = tables.head(records.query.table)
            whole = sources.load_source(request.source).is_whole
            marks = [mark for path in paths for mark in self.inputs(path, whole=whole)]
            n_bytes = sum(local.unpacked_bytes(mark.input, mark.size_bytes) for mark in marks)
            n_rows = max((part.n_rows for part in head.partitions.values()), default=0)
            most = int(str(self._spark.conf.get("spark.sql.shuffle.partitions")))
            n_parts = min(most, 1 + max(n_bytes // _BYTES_PER_PART, n_rows // _ROWS_PER_PART))
            parse = functools.partial(parsed, query=records.query, n_parts=n_parts, read=records.read)
            parts = records.given.mapPartitions(parse).partitionBy(n_parts + 1, int)
            counted = self._counts(parts, n_parts, records)
            days = set(counted["day"].to_pylist())
            changes = self._merged(tables, head, parts, n_parts, days=days)
            known_names.settle(tables, head.table, request.site.scopes, days)
            inputs = counted.group_by("input").aggregate([("n_rows", "sum")])
            refused = counted.filter(pc.is_valid(counted["reason"]))
            rejects = refused.group_by(["input", "reason"]).aggregate([("n_rows", "sum"), ("sample", "min")])
            rejects = rejects.rename_columns({"n_rows_sum": "n_rows", "sample_min": "sample"})
            return summarise(
                tables,
                request,
                inputs=inputs.rename_columns({"n_rows_sum": "n_rows"}),
                rejects=rejects,
                changes=changes,
                n_lost=0,
            )

    def _read(self, request: Request, paths: Sequence[str]) -> _Records:
        source = sources.load_source(request.source)
        if source.entry is not None:  # workers need not have the package
            package = sys.modules[source.entry.module.partition(".")[0]]
            cloudpickle.register_pickle_by_value(package)  # type: ignore[no-untyped-call]
        if source.read is not None:
            (path,) = paths
            if local.is_local(path):
                local.check_plain(path)
            frame, query = source.read(self._spark, path, day=request.site.day)
            return self._rows_of(frame, source.of(query, request.site), frame_rows)
        if local.is_local(request.path):
            return self._local_lines(source, request, paths)
        # Of another file system: lines in bytes, and the file that they came from; unpacked by its suffix.
        columns = F.col("value").cast("binary"), F.col("_metadata.file_path").alias("input")
        frames = [_at(path, self._spark.read.text).select(*columns) for path in paths]
        frame = functools.reduce(DataFrame.unionByName, frames)
        query = source.lines(request.site, functools.partial(_first_line, frame), request.path)
        return self._rows_of(frame, query, frame_lines)

    def _rows_of(
        self,
        frame: DataFrame,
        query: Query,
        read: Callable[[pa.Schema, Iterable[bytes]], Iterable[pa.RecordBatch]],
    ) -> _Records:
        """The rows of a frame as Arrow's messages, which one worker parses and divides.

        What `mapInArrow` makes would go through the JVM's rows and to a second worker.
        """
        messages = frame._jdf.toArrowBatchRdd().toJavaRDD()
        given: RDD[Any] = RDD(messages, self._context, NoOpSerializer())
        return _Records(given, query, functools.partial(read, to_arrow_schema(frame.schema)))

    def _local_lines(self, source: Source, request: Request, paths: Sequence[str]) -> _Records:
        """Pieces of this machine's files: Spark's own reader would follow links."""
        files = local.finished_in([place for path in paths for place in local.places_at(path, request.path)])
        query = source.lines(request.site, functools.partial(lines.first_line, files), request.path)
        # A record may go over several lines: its file is read by one worker.
        most_bytes = _PIECE_BYTES if query.join is None else sys.maxsize
        pieces: list[lines.Piece] = []
        refused: list[tuple[str, NotPlainError]] = []
        for file in files:
            try:
                pieces += lines.pieces(file, most_bytes)
            except NotPlainError as why:
                refused.append((lines.uri_of(file), why))
        n_tasks = max(1, min(len(pieces), _TASKS_PER_CORE * self._context.defaultParallelism))
        return _Records(self._context.parallelize(pieces, n_tasks), query, local_lines, refused)

    def _counts(self, parts: RDD[Piece], n_parts: int, records: _Records) -> pa.Table:
        """The counts of the parsed rows of all workers, and of inputs that were refused before."""
        table = records.query.table
        refused = counts(workspace.refusals(table, records.refused), table)
        counted = received(self._context.runJob(parts, list, [n_parts]))
        return pa.concat_tables([refused, *counted.values()])

    def _merged(
        self, tables: Tables, head: Snapshot, parts: RDD[Piece], n_parts: int, *, days: set[str | None]
    ) -> Changes:
        """Merge the accepted rows in `parts`, which are of `days`, and commit the partitions that changed."""
        table = head.table
        touched = {key: part for key, part in head.partitions.items() if not table.dated_by or key[0] in days}
        files = list(part_files(OLD, head, touched))
        n_tasks = max(1, min(len(files), _TASKS_PER_CORE * self._context.defaultParallelism))
        old = self._context.parallelize(files, n_tasks).flatMap(functools.partial(stored, n_parts=n_parts))
        into = Staging.of(tables, table)
        pieces = parts.union(old.partitionBy(n_parts + 1, int))
        merged = self._context.runJob(pieces, functools.partial(written, into=into), list(range(n_parts)))
        changed = sorted({part.file.key[0] for part in merged if part.n and part.file.key})
        n_new, n_late = sum(part.n for part in merged), sum(part.n_late for part in merged)
        changes = Changes(n_new, n_late, tuple(changed))
        if not changes.n_new and head.number:
            tables.discard(table, into.folder)
            return changes
        same = {
            part.file.folder for part in merged if table.partition and part.file.key[0] not in changes.days
        }
        for folder_of_day in same:
            tables.discard(table, folder_of_day)
        tables.commit(table, [part.file for part in merged if part.file.folder not in same], base=head)
        return changes


def _at(path: str, read: Callable[[str], DataFrame]) -> DataFrame:
    """What Spark reads at `path`; a name that is there is no glob. Raises InputError."""
    try:
        with suppress(AnalysisException):
            return read(_GLOBBED.sub(r"\\\g<0>", path))
        for form in local.alternatives(path):
            if form != path and not local.WILD.search(form):
                _at(form, read)  # Hadoop passes over one that is not there
        return read(path)
    except AnalysisException as error:
        reason = error.getCondition() or "unusable"
        raise InputError(f"cannot read {path}: {reason}; is the path right?") from None


def _first_line(frame: DataFrame) -> str:
    first = frame.filter(F.trim(F.col("value").cast("string")) != "").select("value").first()
    line = b"" if first is None else bytes(first.value)
    if line.startswith(lines.UTF_16):
        raise InputError("cannot read a file that begins as text in UTF-16; write it as UTF-8")
    return line.decode(errors="replace")
