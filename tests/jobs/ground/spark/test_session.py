"""The stderr of Spark's JVM: all of it but one warning, and that too with logging at INFO."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jobs.ground.spark.session import WARNING

CODE = """
import logging, sys
logging.getLogger("jobs.ground.spark").setLevel(int(sys.argv[1]))
from jobs.ground.settings.tree import SparkSettings
from jobs.ground.spark.session import spark_session
options = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
settings = SparkSettings(master="local[1]", driver_memory="1g", shuffle_partitions=1, conf=options)
spark = spark_session(settings)
err = spark._jvm.java.lang.System.err
for word in ("first", "WARNING: Using something else", "last"):
    err.println(word)
assert spark_session(settings) is spark
"""
NOTHING, INFO = 0, 20


@pytest.mark.parametrize(("level", "is_there"), [(NOTHING, False), (INFO, True)])
def test_only_the_warning_of_incubator_modules_is_kept_away(level: int, is_there: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(level)], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert (WARNING in lines) == is_there
    assert [line for line in lines if line != WARNING] == ["first", "WARNING: Using something else", "last"]
