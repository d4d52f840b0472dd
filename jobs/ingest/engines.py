"""Which engine pulls: DuckDB in this process for what is local and of ordinary size, else Spark."""

from __future__ import annotations

from collections.abc import Sequence

from features.common.input_files import InputFile
from features.schema import FILES
from jobs.ingest import sources
from jobs.ingest.local_engine import LocalEngine
from jobs.ingest.pull_input import Engine
from jobs.ingest.sources.local import files_at, is_local, local_path, status_of, unpacked_bytes
from jobs.settings.tree import SparkSettings
from jobs.store.tables import Tables


def chosen(tables: Tables, *, source: str, path: str, up_to_bytes: int, spark: SparkSettings) -> Engine:
    """The engine for the input at `path`; Spark is started if it is the one.

    Local, if input and tables are on this machine, what must be read is at most `up_to_bytes` (packed files
    count tenfold), and the source does not need Spark. Raises InputError if nothing is at a local `path`.
    """
    if sources.decoder(source) is not None:
        local_path(path)
        return LocalEngine()  # their files only make sense one after the other
    files = files_at(path, whole=sources.reads_whole(source)) if is_local(path) else None
    if _fits(tables, source, files, up_to_bytes):
        return LocalEngine()
    from jobs.ingest.spark_engine import SparkEngine  # noqa: PLC0415  Spark is loaded where it is used
    from jobs.spark.session import spark_session  # noqa: PLC0415

    return SparkEngine(spark_session(spark))


def _fits(tables: Tables, source: str, files: Sequence[InputFile] | None, up_to_bytes: int) -> bool:
    if files is None or sources.needs_spark(source) or not is_local(tables.root):
        return False
    if sources.table_of(source) is FILES:  # which is merged as a whole
        files = [*files, *map(InputFile, tables.local_files(FILES))]
    sizes = (unpacked_bytes(str(file.path), status_of(file).st_size) for file in files)
    return sum(sizes) <= up_to_bytes
