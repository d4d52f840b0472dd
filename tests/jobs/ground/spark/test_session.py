"""Spark's session: Java is looked for first, Ctrl-C is left to the command line, one warning is not shown."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from features.common.errors import ServiceError
from jobs.ground.spark import check_spark, java, session
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


def test_a_machine_without_java_is_told_the_remedy(tmp_path: Path) -> None:
    for env in ({"PATH": str(tmp_path)}, {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)}):
        with pytest.raises(
            ServiceError, match=r"no java .*; Spark needs Java 17: conf/deploy/system\.sh core"
        ):
            check_spark(env)
    check_spark({"PATH": "", "PYSPARK_GATEWAY_PORT": "1"})


def test_java_home_comes_first(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    assert java({"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)}) == str(program)


@pytest.fixture
def plain_handler() -> Iterator[None]:
    """The handler that a process begins with, whatever other tests have left."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("plain_handler")
def test_ctrl_c_ends_a_jvm_that_is_still_starting() -> None:
    with pytest.raises(KeyboardInterrupt), session._interruptible():
        started = subprocess.Popen(["/bin/sleep", "60"])
        signal.raise_signal(signal.SIGINT)
    assert started.wait(10) == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("plain_handler")
def test_a_session_keeps_the_handler_of_ctrl_c(spark: SparkSession) -> None:
    assert spark.sparkContext is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
