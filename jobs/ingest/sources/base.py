"""What Spark's part of the sources shares: lines in, checked rows of a table out.

One frame holds everything that was read, with the table's columns plus `reason` (null: accepted), `sample`
and `input`. So a row is accepted or refused, never lost, and the input is parsed once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.errors import InputError, NotPlainError
from features.files import InputFile
from features.schema import ACCESSES, Table
from features.spark.names import name_parts, part
from features.spark.schema import struct_type
from jobs.ingest.sources import lines
from jobs.ingest.sources.sql import ATLAS_SCOPE, EARLIEST_MS, EXPERIMENTS, LATEST_S, SAMPLE_CHARS

_BROKEN = re.compile("(?:FAILED_READ_FILE.*? file|Could not read file:) ([^ \n]+?)[.]?(?: |\n|$)")
_OURS = re.compile("InputError: (cannot read [^\n]+)")
_US = 1_000_000
_PIECE_BYTES = 128 * 2**20
_TASKS_PER_CORE = 8


@dataclasses.dataclass(frozen=True)
class Pulled:
    """One input, read. `parsed` holds every row read: persist it, all else derives from it.

    `accepted` has the columns of `table`, of accesses also `day`. `rejects`: source, input, reason, n_rows,
    sample. `n_lost`: records the source itself says are missing.
    """

    parsed: DataFrame
    table: Table
    accepted: DataFrame
    rejects: DataFrame
    n_lost: int = 0


def pulled(parsed: DataFrame, table: Table, source: str, n_lost: int = 0) -> Pulled:
    """`parsed` (columns of `table`, `reason`, `sample`, `input`) split in accepted and refused rows."""
    rejects = (
        parsed.filter(F.col("reason").isNotNull())
        .groupBy(F.lit(source).alias("source"), "input", "reason")
        .agg(F.count("*").alias("n_rows"), F.min("sample").alias("sample"))
    )
    accepted = parsed.filter(F.col("reason").isNull()).select(*table.column_names)
    if table is ACCESSES:
        accepted = accepted.withColumn("day", F.date_format("accessed_at", "yyyy-MM-dd"))
    return Pulled(parsed, table, accepted, rejects, n_lost)


def parsed_rows(
    raw: DataFrame, table: Table, columns: Mapping[str, Column], *, reason: Column, sample: Column
) -> DataFrame:
    """`raw` (with `input`) as rows of `table`: `columns` by name, null for the others, and the verdict.

    A refused row keeps only its verdict, so that what is kept in memory is small.
    """
    verdict = raw.withColumn("reason", reason)
    accepted = F.col("reason").isNull()
    fields = [
        F.when(accepted, columns.get(field.name, F.lit(None))).cast(field.dataType).alias(field.name)
        for field in struct_type(table)
    ]
    cut = F.when(~accepted, F.substring(sample, 1, SAMPLE_CHARS)).alias("sample")
    return verdict.select(*fields, "reason", cut, "input")


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Raises InputError for a file that is found broken while the block runs, as a gz cut short."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if (ours := _OURS.search(str(error))) is not None:
            raise InputError(ours[1]) from None
        broken = _BROKEN.search(str(error))
        if broken is None:
            raise
        raise InputError(f"cannot read {broken[1]} of {path}: it is broken, or still being written") from None


def read_lines(spark: SparkSession, path: str) -> DataFrame:
    """Every line as `value`, in bytes, with the file it came from as `input`, of another file system.

    gz, bz2 and zst by their suffix; `path` may be a folder or a glob. Raises InputError if nothing is there.
    """
    try:
        lines = spark.read.text(path)
    except AnalysisException as error:
        raise InputError(
            f"cannot read {path}: {error.getCondition() or 'unusable'}; is the path right?"
        ) from None
    return lines.select(F.col("value").cast("binary"), F.col("_metadata.file_path").alias("input"))


def read_local_lines(
    spark: SparkSession, files: Iterable[InputFile], refuse: Callable[[InputFile, NotPlainError], None]
) -> DataFrame:
    """The same of this machine's files, read by Python's workers: Spark's own reader follows links.

    `refuse` is told of what is no plain file. What becomes such afterwards is an InputError.
    """
    rows: list[tuple[str, str, int, int | None]] = []
    for file in files:
        try:
            found = lines.pieces(file, _PIECE_BYTES)
            rows += [(str(file.given), file.below, one.start, one.stop) for one in found]
        except NotPlainError as error:
            refuse(file, error)
    n_tasks = max(1, min(len(rows), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    pieces = spark.createDataFrame(rows, "given string, below string, start long, stop long")
    return pieces.repartition(n_tasks).mapInArrow(_lines_of, "value binary, input string")


def _lines_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = (
            lines.Piece(InputFile(Path(row["given"]), row["below"]), row["start"], row["stop"])
            for row in batch.to_pylist()
        )
        yield from lines.batches(found, fail)


def fail(file: InputFile, why: NotPlainError) -> None:
    """Raise InputError, for readers that refuse nothing."""
    raise InputError(f"cannot read {file.path}: it is {why.kind}, not a plain file")


def first_reason(*checks: tuple[Column, str | Column]) -> Column:
    """The words of the first check that holds (a null check does not), or null."""
    reason = F.lit(None).cast("string")
    for check, words in reversed(checks):
        reason = F.when(check, F.lit(words) if isinstance(words, str) else words).otherwise(reason)
    return reason


def micros(seconds: Column) -> Column:
    """µs since 1970 of a number of seconds, or text of one; null if it is none or out of range."""
    value = seconds.try_cast("double")
    return F.when((value >= 0) & (value < LATEST_S), F.rint(value * _US).cast("long"))


def micros_of_ms(milliseconds: Column) -> Column:
    """µs since 1970 of a number of milliseconds, or text of one; null if it is none, or seconds or µs."""
    value = milliseconds.try_cast("double")
    in_range = (value >= EARLIEST_MS) & (value < LATEST_S * 1000)
    return F.when(in_range, F.rint(value * 1000).cast("long"))


def timestamp(us: Column) -> Column:
    """Timestamp of µs since 1970."""
    return F.timestamp_micros(us)


def count(text: Column) -> Column:
    """A whole number, or null; `1.5` is none."""
    return text.try_cast("long")


def named(name: Column, scope: Column | None = None) -> dict[str, Column]:
    """Columns did, scope, name, dataset, tier, campaign, experiment of a file (or dataset) called `name`.

    Without `scope` it is the experiment, or `unknown`. Add column `parts` (see `with_parts`) before.
    """
    parts = F.col("parts")
    by_scope = F.when(scope.isin(*EXPERIMENTS), scope) if scope is not None else F.lit(None)
    experiment = F.coalesce(part(parts, "experiment"), by_scope)
    owner = scope if scope is not None else F.coalesce(experiment, F.lit("unknown"))
    return {
        "did": F.concat(owner, F.lit(":"), name),
        "scope": owner,
        "name": name,
        "dataset": F.concat(owner, F.lit(":"), part(parts, "dataset")),
        "tier": part(parts, "tier"),
        "campaign": part(parts, "campaign"),
        "experiment": experiment,
    }


def with_parts(raw: DataFrame, name: Column, scope: Column | None = None) -> DataFrame:
    """`raw` with `parts`, what `name` tells; an ATLAS scope helps to know the file."""
    full = name
    if scope is not None:
        full = F.when(scope.rlike(ATLAS_SCOPE), F.concat(scope, F.lit(":"), name)).otherwise(name)
    # A column of its own: within the expression it would be put together again for every rule.
    return raw.withColumn("full_name", full).withColumn("parts", name_parts(F.col("full_name")))
