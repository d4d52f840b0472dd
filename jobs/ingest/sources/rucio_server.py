"""A Rucio server, asked for the files of datasets; `jobs.ingest.catalogue` decides which.

What it tells goes to a folder first, as JSON lines of `rucio_files`: it is asked once, and nothing that grows
with the catalogue is held here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from jobs.ingest.sources import rucio_catalogue
from prefetch.rucio.bulk import Row

NAME = "rucio_server"


def fetch(spark: SparkSession, batches: Iterable[Sequence[Row]], folder: str, *, day: str) -> None:
    """Write `batches` of rows, told on `day`, to `folder`, where Spark can read. Raises as `batches` do."""
    _write(spark, [], folder)
    for batch in batches:
        _write(spark, [rucio_catalogue.line(row, day) for row in batch], folder)


def _write(spark: SparkSession, lines: list[str], folder: str) -> None:
    frame = spark.createDataFrame(pa.table({"value": pa.array(lines, pa.string())}))
    frame.coalesce(1).write.mode("append").text(folder)
