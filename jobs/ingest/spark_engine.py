"""The engine for inputs and tables of any size, on any file system: Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from features.errors import InputError, NotPlainError
from features.files import InputFile
from features.schema import ACCESSES, FILES, Table
from features.spark.schema import struct_type
from jobs.ingest import sources
from jobs.ingest.local_engine import decoded, marks
from jobs.ingest.raw_input import LATE_DAYS, Changes, Mark, PullSummary, Request, concluded
from jobs.ingest.sources import lines, workspace
from jobs.ingest.sources.base import Pulled, pulled, read_lines, read_local_lines, readable
from jobs.ingest.sources.local import check_plain, files_in, is_local, places_at
from jobs.ingest.sources.sql import Query
from jobs.ingest.spark_merging import merged_accesses, merged_files
from jobs.spark import table_io
from jobs.store.tables import Tables

_KEEP = StorageLevel.DISK_ONLY  # in memory, millions of rows in a few partitions exceed the heap
_ROWS_AT_ONCE = 20_000
"""Lines that a worker parses at once: fewer of them spend their time on planning, more on memory."""


class SparkEngine:
    """Spark; see `jobs.ingest.raw_input.Engine`."""

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
        with readable(request.path):
            return merge(self._spark, tables, request, lambda: self._read(tables, request, paths))

    def _read(self, tables: Tables, request: Request, paths: Sequence[str]) -> Pulled:
        if sources.needs_spark(request.source):
            (path,) = paths
            if is_local(path):
                check_plain(path)
            rows: Pulled = sources.module(request.source).read(self._spark, path, day=request.site.day)
            return rows
        decode = sources.decoder(request.source)
        if decode is None and not is_local(request.path):
            elsewhere = [read_lines(self._spark, path) for path in paths]
            found = functools.reduce(DataFrame.unionByName, elsewhere)
            return self._rows(request, found, functools.partial(_first_line, found))
        places = [place for path in paths for place in places_at(path, request.path)]
        if decode is not None:
            with workspace.opened(sources.table_of(request.source)) as space:
                n_lost = decoded(decode, space, tables, request, places)
                parsed = space.found("SELECT * FROM parsed").cast(workspace.parsed_schema(space.table))
            return pulled(self._spark.createDataFrame(parsed), space.table, request.source, n_lost)
        return self._local_lines(request, files_in(places))

    def _local_lines(self, request: Request, files: Sequence[InputFile]) -> Pulled:
        refused: list[tuple[str, NotPlainError]] = []
        found = read_local_lines(
            self._spark, files, lambda file, why: refused.append((lines.uri_of(file), why))
        )
        rows = self._rows(request, found, functools.partial(lines.first_line, files))
        if not refused:
            return rows
        more = self._spark.createDataFrame(workspace.refusals(rows.table, refused))
        return pulled(rows.parsed.unionByName(more), rows.table, request.source)

    def _rows(self, request: Request, found: DataFrame, first_line: Callable[[], str]) -> Pulled:
        return rows_of(found, sources.query_of_lines(request.source, request.site, first_line, request.path))


def rows_of(raw: DataFrame, query: Query) -> Pulled:
    """The rows of raw records, parsed where Spark reads them."""
    parse = functools.partial(workspace.parse, query, rows=_ROWS_AT_ONCE)
    return pulled(raw.mapInArrow(parse, _parsed_type(query.table)), query.table, query.source)


def merge(spark: SparkSession, tables: Tables, request: Request, read: Callable[[], Pulled]) -> PullSummary:
    """Merge the rows of `read`, which is called under the lock of pulls; see `raw_input.Engine.merge`."""
    with tables.exclusive("pull"):
        rows = read()
        rows.parsed.persist(_KEEP)
        try:
            inputs = rows.parsed.groupBy("input").agg(F.count("*").alias("n_rows")).toArrow()
            rejects = rows.rejects.toArrow()
            into = _merge_accesses if rows.table is ACCESSES else _merge_files
            changes = into(spark, tables, rows.accepted)
            return concluded(
                tables, request, inputs=inputs, rejects=rejects, changes=changes, n_lost=rows.n_lost
            )
        finally:
            rows.parsed.unpersist()


def _parsed_type(table: Table) -> StructType:
    verdict = [StructField(name, StringType()) for name in ("reason", "sample", "input")]
    return StructType([*struct_type(table).fields, *verdict])


def _first_line(found: DataFrame) -> str:
    """The first line that is not blank; empty if there is none."""
    first = found.filter(F.trim(F.col("value").cast("string")) != "").select("value").first()
    return "" if first is None else bytes(first.value).decode(errors="replace")


def _merge_accesses(spark: SparkSession, tables: Tables, rows: DataFrame) -> Changes:
    days = {row["day"] for row in rows.select("day").distinct().toLocalIterator()}
    base = tables.head(ACCESSES)
    chosen = {key: part for key, part in base.partitions.items() if key[0] in days}
    old = table_io.read_partitions(spark, base, chosen) if chosen else None
    merged = merged_accesses(rows, old).persist(_KEEP)
    is_late = F.col("known_at") > F.coalesce("closed_at", "accessed_at") + F.make_dt_interval(
        F.lit(LATE_DAYS)
    )
    counts = (F.count("*").alias("n"), F.count_if(is_late).alias("n_late"))
    try:
        changes = merged.filter("changed").groupBy("day").agg(*counts).toArrow()
        changed = tuple(sorted(changes["day"].to_pylist()))
        if changed or not base.number:
            table_io.replace(merged.filter(F.col("day").isin(*changed)), tables, ACCESSES, base=base)
        return Changes(pc.sum(changes["n"]).as_py() or 0, pc.sum(changes["n_late"]).as_py() or 0, changed)
    finally:
        merged.unpersist()


def _merge_files(spark: SparkSession, tables: Tables, rows: DataFrame) -> Changes:
    base = tables.head(FILES)
    old = table_io.read_partitions(spark, base, base.partitions) if base.number else None
    merged = merged_files(rows, old).persist(_KEEP)
    try:
        n_changed = merged.filter("changed").count()
        if n_changed or not base.number:
            table_io.replace(merged, tables, FILES, base=base)
        return Changes(n_changed)
    finally:
        merged.unpersist()
