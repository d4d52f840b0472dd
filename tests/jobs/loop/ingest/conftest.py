"""The engine of Spark; that both leave the same in the tables, whatever they read, is in `test_engines`."""

import pytest
from pyspark.sql import SparkSession

from jobs.loop.ingest.pull_input import Engine
from jobs.loop.ingest.spark_engine import SparkEngine


@pytest.fixture
def spark_engine(spark: SparkSession) -> Engine:
    return SparkEngine(spark)
