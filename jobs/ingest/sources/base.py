"""Raw records as frames of Spark: lines of other file systems, and pieces of this machine's files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.common.errors import InputError, NotPlainError
from features.common.input_files import InputFile
from jobs.ingest.sources import lines

_BROKEN = re.compile("(?:FAILED_READ_FILE.*? file|Could not read file:) ([^ \n]+?)[.]?(?: |\n|$)")
_OURS = re.compile("InputError: (cannot read [^\n]+)")
_PIECE_BYTES = 128 * 2**20
_TASKS_PER_CORE = 8


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


def local_pieces(
    spark: SparkSession, files: Iterable[InputFile], refuse: Callable[[InputFile, NotPlainError], None]
) -> DataFrame:
    """Pieces of this machine's files, for `lines_of`: Spark's own reader follows links.

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
    return pieces.repartition(n_tasks)


def lines_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The lines of pieces (see `local_pieces`): value in bytes, and input."""
    for batch in batches:
        found = (
            lines.Piece(InputFile(Path(row["given"]), row["below"]), row["start"], row["stop"])
            for row in batch.to_pylist()
        )
        yield from lines.batches(found, lines.fail)
