"""The engine of Spark; that both leave the same in the tables, whatever they read, is in `test_engines`."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.loop.ingest import queued_files
from jobs.loop.ingest.known_names import plain_names
from jobs.loop.ingest.pull_input import Engine
from jobs.loop.ingest.spark_engine import SparkEngine

PLAIN: dict[str, str] = {}


@pytest.fixture
def spark_engine(spark: SparkSession) -> Engine:
    return SparkEngine(spark)


@pytest.fixture
def names_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes the names in queues plain is asked once about each: it takes as long for one as for all."""

    def remembered(names: pa.Array) -> pa.Array:
        if new := [name for name in names.to_pylist() if name not in PLAIN]:
            PLAIN.update(zip(new, plain_names(pa.array(new, pa.string())).to_pylist(), strict=True))
        return pa.array([PLAIN[name] for name in names.to_pylist()], pa.string())

    monkeypatch.setattr(queued_files, "plain_names", remembered)
