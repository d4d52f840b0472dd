"""The engines of a pull: what they leave in the tables must be the same."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from jobs.ingest.local_engine import LocalEngine
from jobs.ingest.raw_input import Engine
from jobs.ingest.spark_engine import SparkEngine


@pytest.fixture
def spark_engine(spark: SparkSession) -> Engine:
    return SparkEngine(spark)


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    if request.param == "local":
        return LocalEngine()
    found: Engine = request.getfixturevalue("spark_engine")
    return found
